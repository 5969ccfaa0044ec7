//! Options of a route, whatever serves it. A host, and `[defaults]` for all hosts, have the same
//! keys: a route inherits each key that it does not set.

mod accel; // files that applications name
mod access; // which requests a route serves
mod access_log; // access logs of a route
mod canonical; // redirects to the canonical host and to HTTPS
mod cors; // cross-origin requests
mod error_pages; // pages for errors
mod fields; // fields and codings of responses
mod jwt; // tokens
mod sub_filter; // substitution of texts in bodies
mod limits; // rates and numbers of requests
mod request_id; // request IDs
mod tracing; // distributed traces

use std::path::PathBuf;
use std::time::Duration;

use weft::{HeaderName, Method, Network, Settings};
use weft_config::{Key, quoted};

pub(crate) use accel::AccelFolder;
pub(crate) use access::{Origin, Satisfy};
#[cfg(test)]
pub(crate) use access_log::ACCESS_LOG;
use access_log::ACCESS_LOG_OPTION;
pub(crate) use access_log::AccessLogConfig;
pub(crate) use error_pages::{ErrorPage, PageSource};
pub(crate) use fields::{Field, FieldChanges, FieldOperation};
pub(crate) use jwt::JwtKeys;
pub(crate) use sub_filter::Substitution;

use crate::base::rate::Rate;
use crate::route::Share;
use crate::sections::auth_url::AuthUrl;
use crate::template::Template;

/// Options of a route, of a host, or of all hosts. `None`: not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RouteOptions {
    pub(crate) https_redirect: Option<bool>,
    pub(crate) canonical_host: Option<String>,
    pub(crate) maintenance: Option<Setting<PathBuf>>,
    pub(crate) allow: Option<Vec<Network>>,
    pub(crate) deny: Option<Vec<Network>>,
    pub(crate) allow_file: Option<PathBuf>,
    pub(crate) deny_file: Option<PathBuf>,
    pub(crate) client_cert_required: Option<bool>,
    pub(crate) rate: Option<Setting<Rate>>,
    pub(crate) rate_key: Option<Template>,
    pub(crate) burst: Option<u32>,
    pub(crate) max_concurrent_requests: Option<u32>,
    pub(crate) max_body_bytes: Option<u64>,
    pub(crate) min_bytes_per_second: Option<u32>,
    pub(crate) stall_timeout: Option<Duration>,
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) bandwidth: Option<u64>,
    pub(crate) bandwidth_after: Option<u64>,
    pub(crate) request_id: Option<Setting<HeaderName>>,
    /// Share of the traces that begin here which is sampled.
    pub(crate) tracing: Option<Setting<Share>>,
    pub(crate) cors: Option<Vec<Origin>>,
    pub(crate) cors_methods: Option<Vec<Method>>,
    pub(crate) cors_headers: Option<Vec<HeaderName>>,
    pub(crate) cors_credentials: Option<bool>,
    pub(crate) cors_max_age: Option<Duration>,
    pub(crate) basic_auth: Option<Setting<PathBuf>>,
    pub(crate) realm: Option<String>,
    pub(crate) jwt: Option<Setting<JwtKeys>>,
    pub(crate) jwt_issuer: Option<Vec<String>>,
    pub(crate) jwt_audience: Option<Vec<String>>,
    pub(crate) jwt_claims: Option<Vec<String>>,
    pub(crate) jwt_clock_skew: Option<Duration>,
    pub(crate) forward_auth: Option<Setting<AuthUrl>>,
    pub(crate) forward_auth_headers: Option<Vec<HeaderName>>,
    pub(crate) forward_auth_timeout: Option<Duration>,
    pub(crate) satisfy: Option<Satisfy>,
    pub(crate) request_fields: FieldChanges,
    pub(crate) response_fields: FieldChanges,
    pub(crate) error_pages: Vec<ErrorPage>,
    pub(crate) intercept_errors: Option<bool>,
    pub(crate) security_headers: Option<bool>,
    pub(crate) hsts: Option<Duration>,
    pub(crate) sub_filter: Option<Vec<Substitution>>,
    pub(crate) sub_filter_types: Option<Vec<String>>,
    pub(crate) sub_filter_once: Option<bool>,
    pub(crate) compress: Option<bool>,
    pub(crate) gzip_level: Option<u32>,
    pub(crate) accel: Option<Vec<AccelFolder>>,
    /// Empty: none.
    pub(crate) access_log: Option<Vec<AccessLogConfig>>,
}

impl RouteOptions {
    /// The templates of fields and of replaced texts.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        let fields = [&self.request_fields, &self.response_fields];
        let fields = fields.into_iter().flat_map(|changes| &changes.set).map(|field| &field.value);
        fields.chain(self.sub_filter.iter().flatten().map(|it| &it.replacement))
    }

    /// Returns true if the requests are spans of traces.
    pub(crate) fn has_tracing(&self) -> bool {
        self.tracing.as_ref().is_some_and(|share| share.value().is_some())
    }

    /// Returns true if texts of bodies are replaced.
    pub(crate) fn substitutes(&self) -> bool {
        self.sub_filter.as_ref().is_some_and(|list| !list.is_empty())
    }
}

/// A value, or the word `none`, with which a route opts out of an inherited value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Setting<T> {
    None,
    Value(T),
}

impl<T> Setting<T> {
    pub(crate) fn value(&self) -> Option<&T> {
        match self {
            Setting::None => None,
            Setting::Value(value) => Some(value),
        }
    }
}

const NONE: &str = "none";

pub(crate) static OPTIONS: [Key<RouteOptions>; 53] = [
    canonical::HTTPS_REDIRECT,
    canonical::CANONICAL_HOST,
    access::MAINTENANCE,
    access::ALLOW,
    access::DENY,
    access::ALLOW_FILE,
    access::DENY_FILE,
    access::CLIENT_CERT_REQUIRED,
    limits::RATE,
    limits::RATE_KEY,
    limits::BURST,
    limits::MAX_CONCURRENT_REQUESTS,
    limits::MAX_BODY_BYTES,
    limits::MIN_BYTES_PER_SECOND,
    limits::STALL_TIMEOUT,
    limits::REQUEST_TIMEOUT,
    limits::BANDWIDTH,
    limits::BANDWIDTH_AFTER,
    request_id::REQUEST_ID,
    tracing::TRACING,
    access::CORS,
    cors::CORS_METHODS,
    cors::CORS_HEADERS,
    cors::CORS_CREDENTIALS,
    cors::CORS_MAX_AGE,
    access::BASIC_AUTH,
    access::REALM,
    jwt::JWT_KEYS,
    jwt::JWT_KEYS_URL,
    jwt::JWT_SECRET,
    jwt::JWT_ISSUER,
    jwt::JWT_AUDIENCE,
    jwt::JWT_CLAIMS,
    jwt::JWT_CLOCK_SKEW,
    access::FORWARD_AUTH,
    access::FORWARD_AUTH_HEADERS,
    access::FORWARD_AUTH_TIMEOUT,
    access::SATISFY,
    error_pages::ERROR_PAGES,
    error_pages::INTERCEPT_ERRORS,
    fields::REQUEST_HEADERS,
    fields::REMOVE_REQUEST_HEADERS,
    fields::RESPONSE_HEADERS,
    fields::REMOVE_RESPONSE_HEADERS,
    fields::SECURITY_HEADERS,
    fields::HSTS,
    sub_filter::SUB_FILTER,
    sub_filter::SUB_FILTER_TYPES,
    sub_filter::SUB_FILTER_ONCE,
    fields::COMPRESS,
    fields::GZIP_LEVEL,
    accel::ACCEL,
    ACCESS_LOG_OPTION,
];

impl RouteOptions {
    /// Takes values that are not set from `outer`. The networks of clients belong together: if any of
    /// their keys is set, none is inherited. Fields are inherited name by name, and error pages status by
    /// status.
    pub(crate) fn or(self, outer: &RouteOptions) -> RouteOptions {
        let outer = outer.clone();
        let has_networks = self.has_networks();
        let (allow, deny, allow_file, deny_file) = match has_networks {
            true => (self.allow, self.deny, self.allow_file, self.deny_file),
            false => (outer.allow, outer.deny, outer.allow_file, outer.deny_file),
        };
        RouteOptions {
            https_redirect: self.https_redirect.or(outer.https_redirect),
            canonical_host: self.canonical_host.or(outer.canonical_host),
            maintenance: self.maintenance.or(outer.maintenance),
            allow,
            deny,
            allow_file,
            deny_file,
            client_cert_required: self.client_cert_required.or(outer.client_cert_required),
            // A burst without a rate of its own would be that of another rate.
            burst: if self.rate.is_some() { self.burst } else { self.burst.or(outer.burst) },
            rate: self.rate.or(outer.rate),
            rate_key: self.rate_key.or(outer.rate_key),
            max_concurrent_requests: self.max_concurrent_requests.or(outer.max_concurrent_requests),
            max_body_bytes: self.max_body_bytes.or(outer.max_body_bytes),
            min_bytes_per_second: self.min_bytes_per_second.or(outer.min_bytes_per_second),
            stall_timeout: self.stall_timeout.or(outer.stall_timeout),
            request_timeout: self.request_timeout.or(outer.request_timeout),
            bandwidth: self.bandwidth.or(outer.bandwidth),
            bandwidth_after: self.bandwidth_after.or(outer.bandwidth_after),
            request_id: self.request_id.or(outer.request_id),
            tracing: self.tracing.or(outer.tracing),
            cors: self.cors.or(outer.cors),
            cors_methods: self.cors_methods.or(outer.cors_methods),
            cors_headers: self.cors_headers.or(outer.cors_headers),
            cors_credentials: self.cors_credentials.or(outer.cors_credentials),
            cors_max_age: self.cors_max_age.or(outer.cors_max_age),
            basic_auth: self.basic_auth.or(outer.basic_auth),
            realm: self.realm.or(outer.realm),
            jwt: self.jwt.or(outer.jwt),
            jwt_issuer: self.jwt_issuer.or(outer.jwt_issuer),
            jwt_audience: self.jwt_audience.or(outer.jwt_audience),
            jwt_claims: self.jwt_claims.or(outer.jwt_claims),
            jwt_clock_skew: self.jwt_clock_skew.or(outer.jwt_clock_skew),
            forward_auth: self.forward_auth.or(outer.forward_auth),
            forward_auth_headers: self.forward_auth_headers.or(outer.forward_auth_headers),
            forward_auth_timeout: self.forward_auth_timeout.or(outer.forward_auth_timeout),
            satisfy: self.satisfy.or(outer.satisfy),
            request_fields: self.request_fields.or(outer.request_fields),
            response_fields: self.response_fields.or(outer.response_fields),
            error_pages: error_pages::inherit(self.error_pages, outer.error_pages),
            intercept_errors: self.intercept_errors.or(outer.intercept_errors),
            security_headers: self.security_headers.or(outer.security_headers),
            hsts: self.hsts.or(outer.hsts),
            sub_filter: self.sub_filter.or(outer.sub_filter),
            sub_filter_types: self.sub_filter_types.or(outer.sub_filter_types),
            sub_filter_once: self.sub_filter_once.or(outer.sub_filter_once),
            compress: self.compress.or(outer.compress),
            gzip_level: self.gzip_level.or(outer.gzip_level),
            accel: self.accel.or(outer.accel),
            access_log: self.access_log.or(outer.access_log),
        }
    }

    /// Returns true if there are rules about the addresses of clients.
    pub(in crate::config) fn has_networks(&self) -> bool {
        let lists = [&self.allow, &self.deny];
        let files = [&self.allow_file, &self.deny_file];
        lists.iter().any(|list| list.is_some()) || files.iter().any(|file| file.is_some())
    }

    /// Takes the other value of the rate of bodies from `limits` if one of them is set.
    pub(crate) fn complete_body_rate(&mut self, limits: &Settings) {
        if self.min_bytes_per_second.is_some() || self.stall_timeout.is_some() {
            self.min_bytes_per_second.get_or_insert(limits.min_bytes_per_second);
            self.stall_timeout.get_or_insert(limits.stall_timeout);
        }
    }

    /// Removes options that have no effect without others, as a route inherits them.
    pub(crate) fn without_effectless(mut self) -> RouteOptions {
        if self.rate.as_ref().and_then(Setting::value).is_none() {
            (self.rate_key, self.burst) = (None, None);
        }
        if self.bandwidth.is_none_or(|bandwidth| bandwidth == 0) {
            self.bandwidth_after = None;
        }
        let has_method = [
            self.basic_auth.as_ref().and_then(Setting::value).is_some(),
            self.jwt.as_ref().and_then(Setting::value).is_some(),
        ];
        if has_method == [false; 2] {
            self.realm = None;
        }
        self
    }
}

fn show<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(String::new, T::to_string)
}

fn show_setting<T>(setting: Option<&Setting<T>>, show: impl FnOnce(&T) -> String) -> String {
    match setting {
        None => String::new(),
        Some(Setting::None) => quoted(NONE),
        Some(Setting::Value(value)) => quoted(&show(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::fields::{set_headers, set_remove_response_headers};
    use super::limits::set_rate;
    use super::*;
    use weft_config::Located;

    #[test]
    fn inherits_each_option_that_is_not_set() {
        let at = |text: &str| Located {
            location: weft_config::ConfigLocation::Unknown,
            value: text.to_owned(),
        };
        let options = |headers: &[&str], removed: &[&str], allow: &str, deny: &str| {
            let mut options = RouteOptions::default();
            set_headers(&mut options, headers.iter().map(|text| at(text)).collect()).unwrap();
            set_remove_response_headers(
                &mut options,
                removed.iter().map(|text| at(text)).collect(),
            )
            .unwrap();
            let list = |text: &str| (!text.is_empty()).then(|| vec![text.parse().unwrap()]);
            RouteOptions { allow: list(allow), deny: list(deny), ..options }
        };
        let outer = options(&["A: 1", "B: 1"], &["C"], "10.0.0.0/8", "10.1.0.0/16");
        let inner = options(&["b: 2"], &["A"], "", "10.2.0.0/16").or(&outer);
        assert_eq!(inner, options(&["b: 2"], &["a", "c"], "", "10.2.0.0/16"));
        assert_eq!(options(&["c: 2"], &[], "", "").or(&outer), {
            options(&["c: 2", "a: 1", "b: 1"], &[], "10.0.0.0/8", "10.1.0.0/16")
        });
        let rate = |rate: &str, burst| {
            let mut options = RouteOptions { burst, ..RouteOptions::default() };
            set_rate(&mut options, at(rate)).unwrap();
            options
        };
        let unset = RouteOptions::default;
        assert_eq!(unset().or(&rate("1/s", Some(5))), rate("1/s", Some(5)));
        assert_eq!(rate("2/s", None).or(&rate("1/s", Some(5))), rate("2/s", None));
        assert_eq!(rate("none", None).or(&rate("1/s", Some(5))), rate("none", None));
    }
}
