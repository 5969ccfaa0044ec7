//! `proxy`: forwards requests to upstreams with HTTP.

mod balance; // balancing and health
mod check; // health checks
mod keys; // the keys of a proxy route
mod mirror; // copies of requests

use std::path::Path;
use std::sync::Arc;

use weft::Request;
use weft_config::{
    ConfigResult, CustomType, Given, Key, SectionKeys, ValueKind, quoted_list, schema,
};
use weft_upstream::{ProxySettings, ReverseProxy, UpstreamMember, UpstreamProtocol, UpstreamUrl};

use self::keys::PROXY;
pub(super) use self::keys::{BUFFER_BYTES, upstream_keys};
use super::form::{
    OpenContext, Operator, PathKeys, PlanContext, RouteApp, RouteForm, section_keys,
};
use super::{ResponseFuture, respond_later};
use crate::options::RouteOptions;
use crate::sections::resolver;
use crate::template::Template;

/// Values of the keys.
pub(crate) type ProxyForm = ProxySettings;

static UPSTREAMS: Key<ProxySettings> = upstreams_key("proxy", "URLs of upstreams");

impl RouteForm for ProxySettings {
    type App = Arc<ReverseProxy>;

    fn name() -> &'static str {
        UPSTREAMS.name
    }

    fn keys() -> SectionKeys<ProxySettings> {
        section_keys(std::iter::once(&UPSTREAMS).chain(&PROXY))
    }

    fn operator() -> Option<Operator<ProxySettings>> {
        let parse = |urls: &str, _: &Path| {
            let upstreams = ProxySettings::parse_upstreams(urls)?;
            Ok(ProxySettings { upstreams, ..ProxySettings::default() })
        };
        Some(Operator { sign: ">>", argument: "URL", subject: "a proxy", parse })
    }

    fn path_keys() -> PathKeys {
        PathKeys::Rewrite
    }

    fn plan(
        &mut self,
        options: &mut RouteOptions,
        context: &PlanContext<'_>,
    ) -> Result<(), String> {
        plan_upstreams(self, options, context)
    }

    fn open(&self, context: &OpenContext<'_>) -> Result<Arc<ReverseProxy>, String> {
        open_proxy(self, context)
    }

    fn upstreams(&self) -> Option<&ProxySettings> {
        Some(self)
    }

    fn ineffective(&self) -> Vec<&'static str> {
        ineffective_settings(self)
    }
}

impl RouteApp for Arc<ReverseProxy> {
    fn for_worker(&self, has_metrics: bool) -> Arc<ReverseProxy> {
        Arc::new(ReverseProxy::for_worker(self, has_metrics))
    }

    fn call(&self, request: Request) -> ResponseFuture {
        respond_later(ReverseProxy::respond(self.clone(), request))
    }

    fn proxy(&self) -> Option<&ReverseProxy> {
        Some(self)
    }

    fn takes_path(&self, is_exact: bool) -> bool {
        is_exact && self.has_path()
    }
}

/// Returns the key that names the upstreams. Its values are URLs, or addresses with a protocol
/// other than HTTP: a text with spaces between the upstreams and their options, or a list of such
/// texts.
pub(super) const fn upstreams_key(name: &'static str, help: &'static str) -> Key<ProxySettings> {
    Key {
        name,
        help,
        kind: ValueKind::Custom(&UPSTREAM_LIST, set_upstreams),
        show: |settings| quoted_list(settings.upstreams.iter().map(ToString::to_string)),
        ..Key::FILE_ONLY
    }
}

static UPSTREAM_LIST: CustomType =
    CustomType { is_list: true, shape: "text or list", schema: schema::texts };

fn set_upstreams(settings: &mut ProxySettings, given: Given<'_>) -> ConfigResult {
    let Given::Values(values) = given else { unreachable!("upstreams have no option") };
    for value in values {
        for text in value.texts()? {
            let members = parse_upstreams(settings.protocol, &text.value);
            settings.upstreams.extend(members.map_err(|invalid| text.problem(invalid))?);
        }
    }
    match (values, settings.upstreams.is_empty()) {
        ([target, ..], true) => Err(target.problem("a proxy needs the URL of an upstream")),
        _ => Ok(()),
    }
}

fn parse_upstreams(protocol: UpstreamProtocol, text: &str) -> Result<Vec<UpstreamMember>, String> {
    let (parse, example): (fn(&str) -> _, _) = match protocol {
        UpstreamProtocol::Http1 => return ProxySettings::parse_upstreams(text),
        UpstreamProtocol::FastCgi => {
            (UpstreamUrl::fastcgi, "unix:/run/php/php-fpm.sock or 127.0.0.1:9000")
        }
        UpstreamProtocol::Scgi => (UpstreamUrl::scgi, "unix:/run/app.sock or 127.0.0.1:4000"),
        UpstreamProtocol::Uwsgi => (UpstreamUrl::uwsgi, "unix:/run/app.sock or 127.0.0.1:3031"),
    };
    let members = UpstreamMember::parse_list(text, parse)?;
    match members.is_empty() {
        true => Err(format!("expected the address of an upstream, such as {example}")),
        false => Ok(members),
    }
}

/// Completes settings by inherited values, and validates them.
pub(super) fn plan_upstreams(
    settings: &mut ProxySettings,
    options: &RouteOptions,
    context: &PlanContext<'_>,
) -> Result<(), String> {
    settings.max_body_bytes = options.request_body.max_bytes(context.limits);
    if !context.trusted_proxies.is_empty() {
        settings.trusted.get_or_insert_with(|| context.trusted_proxies.to_vec());
    }
    settings.validate().map_err(|invalid| invalid.with_names(key_of_setting))
}

/// Returns the key for a field of [`ProxySettings`].
fn key_of_setting(field: &str) -> &str {
    match field {
        "check.body" => "check_body",
        "check.host" => "check_host",
        "check.statuses" => "check_statuses",
        "mirror.max_copies" => "max_mirrored",
        "mirror.share" => "mirror_share",
        "mirror.timeout" => "mirror_timeout",
        "mirror.url" => "mirror",
        "sticky.cookie" => "sticky_cookie",
        "sticky.max_age" => "sticky_max_age",
        "sticky.secret" => "sticky_secret",
        field => resolver::key_of_setting(field),
    }
}

pub(super) fn open_proxy(
    settings: &ProxySettings,
    context: &OpenContext<'_>,
) -> Result<Arc<ReverseProxy>, String> {
    let mut opened = settings.clone();
    opened.dns.local_services = context.services.clone();
    let proxy = ReverseProxy::with_settings(opened, context.buffer_space.clone())?;
    let key = Template::parse(&settings.hash_key)?;
    let key = move |request: &Request| key.expand(request).unwrap_or_default();
    Ok(Arc::new(proxy.with_hash_key(Arc::new(key))))
}

/// Returns a message for each value that has no effect on these upstreams.
pub(super) fn ineffective_settings(settings: &ProxySettings) -> Vec<&'static str> {
    let unused_ca = settings.ca.is_some() && !settings.has_tls_upstream();
    let resolver = settings.has_unused_resolver();
    let resolver = resolver.then_some("`resolver` has no effect without an upstream with a name");
    let ca = unused_ca.then_some("`ca` has no effect without an upstream https://");
    resolver.into_iter().chain(ca).collect()
}
