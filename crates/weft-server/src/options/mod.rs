//! Options of a route, whatever serves it. A host, and `[defaults]` for all hosts, have the same
//! keys: a route inherits each key that it does not set.
//!
//! An option, or a family of options, is a module with a type that implements [`RouteOption`]: the
//! values of its keys, and everything that follows from them. A new option is a file, and a line in
//! the list below.

mod fields; // names of fields and changes to fields
mod layer; // middleware of a route
mod scope; // routes to which options apply, for warnings

use std::sync::LazyLock;

use weft::header::{self, HeaderValue};
use weft::{Response, Settings, StatusCode};
use weft_config::{Key, PartKey, SectionKey, SectionKeys, quoted, quoted_list};

pub(crate) use access_log::AccessLogSettings;
pub(crate) use layer::{NamedRoutes, OpenContext, RouteMiddleware, WrappedApp};
pub(crate) use networks::{NetworkFilter, NetworkRules};
pub(crate) use scope::{RouteFacts, Scope};

use crate::template::Template;
use layer::Layer;
use scope::Finding;

/// Declares the options: their modules, [`RouteOptions`], and the functions that concern all of
/// them.
macro_rules! options {
    ($($(#[$doc:meta])* $type:ident: mod $module:ident;)*) => {
        $(pub(crate) mod $module;)*

        /// Options of a route, of a host, or of all hosts, in the order in which a request passes
        /// through them.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        pub(crate) struct RouteOptions {
            $($(#[$doc])* pub(crate) $module: $module::$type,)*
        }

        static KEYS: LazyLock<SectionKeys<RouteOptions>> = LazyLock::new(|| {
            let mut keys = SectionKeys::new();
            $(keys.extend(section_keys::<$module::$type>(
                |options| &options.$module,
                |options| &mut options.$module,
            ));)*
            keys
        });

        /// The names of the keys, option by option.
        #[cfg(test)]
        pub(crate) fn key_names() -> Vec<Vec<&'static str>> {
            vec![$($module::$type::KEYS.iter().map(|key| key.name).collect()),*]
        }

        impl RouteOptions {
            /// Takes values that are not set from `outer`.
            pub(crate) fn or(self, outer: &RouteOptions) -> RouteOptions {
                RouteOptions { $($module: self.$module.or(&outer.$module),)* }
            }

            /// Completes the options of a route after it has inherited values: removes values
            /// without effect, and takes values from `limits` that belong to others.
            pub(crate) fn complete(mut self, limits: &Settings) -> RouteOptions {
                let all = self.clone();
                $(self.$module.complete(&all, limits);)*
                self
            }

            /// Returns warnings about values that have no effect in `scope`.
            pub(crate) fn without_effect(&self, scope: &Scope<'_>) -> Vec<&'static str> {
                let mut findings = Vec::<Finding>::new();
                $(findings.extend(self.$module.findings(scope));)*
                let found = findings.into_iter().filter(|(is_found, _)| *is_found);
                found.map(|(_, message)| message).collect()
            }

            /// Returns the templates whose values depend on the request.
            pub(crate) fn templates(&self) -> Vec<&Template> {
                let mut templates = Vec::new();
                $(templates.extend(self.$module.templates());)*
                templates
            }

            fn layers(&self, context: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
                let mut layers = Vec::new();
                $(layers.extend(self.$module.open(self, context)?);)*
                Ok(layers)
            }
        }
    };
}

// The order in which a request passes through the middleware, regardless of the order in the file.
options! {
    /// First, so that all responses and all logs have the ID.
    RequestIdOptions: mod request_id;
    TracingOptions: mod tracing;
    /// Outside of all middleware that may refuse a request, so that the fields are on every
    /// response.
    SecurityHeaderOptions: mod security_headers;
    ResponseHeaderOptions: mod response_headers;
    /// Inside of the changes to fields, whose cookies stay as they are configured.
    CookieFlagOptions: mod cookie_flags;
    BandwidthOptions: mod bandwidth;
    /// Outside of all middleware that may fail: its errors have pages, too.
    ErrorPageOptions: mod error_pages;
    CanonicalOptions: mod canonical;
    MaintenanceOptions: mod maintenance;
    NetworkOptions: mod networks;
    ClientCertificateOptions: mod client_certificate;
    RefererOptions: mod referers;
    RateOptions: mod rate;
    ConcurrencyOptions: mod concurrency;
    RequestTimeoutOptions: mod request_timeout;
    /// Before authentication: preflight requests have no credentials.
    CorsOptions: mod cors;
    /// Its layer also applies `jwt` and `forward_auth`.
    AuthenticationOptions: mod authentication;
    JwtOptions: mod jwt;
    ForwardAuthOptions: mod forward_auth;
    RequestBodyOptions: mod request_body;
    RequestHeaderOptions: mod request_headers;
    /// Outside of `sub_filter`, which reads uncoded texts.
    CompressOptions: mod compress;
    SubFilterOptions: mod sub_filter;
    AccelOptions: mod accel;
    /// Next to the application: what all other options do applies to each request.
    ResponseCacheOptions: mod response_cache;
    /// Without a layer: the log is written after the response.
    AccessLogOptions: mod access_log;
}

/// An option of routes, or a family of options: the values of its keys. `None` or an empty list is
/// not set.
pub(crate) trait RouteOption: Sized + 'static {
    /// Keys in a file, with their options of the command line.
    const KEYS: &'static [Key<Self>];

    /// Takes values that are not set from `outer`.
    fn or(self, outer: &Self) -> Self;

    /// Removes values that have no effect after a route has inherited `all` options, and takes
    /// values that belong to others from `limits`.
    fn complete(&mut self, _all: &RouteOptions, _limits: &Settings) {}

    /// Finds values that have no effect.
    fn findings(&self, _scope: &Scope<'_>) -> Vec<Finding> {
        Vec::new()
    }

    /// Returns the templates whose values depend on the request.
    fn templates(&self) -> Vec<&Template> {
        Vec::new()
    }

    /// Opens the middleware of a route with `all` options, outermost first.
    ///
    /// # Errors
    /// If a file cannot be read, or if options exclude each other.
    fn open(&self, _all: &RouteOptions, _context: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        Ok(Vec::new())
    }
}

impl RouteOptions {
    /// Returns true if a client needs a right: an address, a certificate or an identity.
    pub(crate) fn restrict_clients(&self) -> bool {
        self.networks.has_rules()
            || self.client_certificate.is_required()
            || authentication::has_method(self)
    }
}

/// Returns the keys of all options.
pub(crate) fn option_keys() -> &'static SectionKeys<RouteOptions> {
    &KEYS
}

fn section_keys<P: RouteOption>(
    part: fn(&RouteOptions) -> &P,
    part_mut: fn(&mut RouteOptions) -> &mut P,
) -> impl Iterator<Item = Box<dyn SectionKey<RouteOptions>>> {
    P::KEYS.iter().map(move |key| {
        Box::new(PartKey::new(key, part, part_mut)) as Box<dyn SectionKey<RouteOptions>>
    })
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

/// Refuses a request without valid credentials.
fn unauthorized(challenge: &HeaderValue) -> Response {
    let response = Response::from(StatusCode::UNAUTHORIZED);
    response.with_header(header::WWW_AUTHENTICATE, challenge.clone())
}

const NONE: &str = "none";

fn show<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(String::new, T::to_string)
}

fn show_list<T: ToString>(list: Option<&Vec<T>>) -> String {
    list.map_or_else(String::new, |list| quoted_list(list.iter().map(T::to_string)))
}

fn show_setting<T>(setting: Option<&Setting<T>>, show: impl FnOnce(&T) -> String) -> String {
    match setting {
        None => String::new(),
        Some(Setting::None) => quoted(NONE),
        Some(Setting::Value(value)) => quoted(&show(value)),
    }
}
