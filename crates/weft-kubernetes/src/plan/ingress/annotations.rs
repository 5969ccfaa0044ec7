//! Annotations of ingress-nginx → keys of routes.
//!
//! An annotation is carried over, or it is reported as lost. If it protects a route, such as a
//! password that cannot be carried over, the route is not served: without it, it would be open.

use std::collections::BTreeMap;

use super::sizes::{seconds, size};
use crate::plan::fields::{check_name, check_value};
use crate::plan::hostnames::is_host_name;
use crate::plan::matches::check_path;
use crate::plan::toml::{Table, literal, quoted, texts};

/// Prefix of the annotations.
pub(super) const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// Annotations without which a route would be open, or would fail.
const PROTECTIONS: &[&str] = &[
    "auth-realm",
    "auth-secret",
    "auth-snippet",
    "auth-tls-match-cn",
    "auth-tls-secret",
    "auth-tls-verify-client",
    "auth-type",
    "backend-protocol",
    "configuration-snippet",
    "enable-global-auth",
    "enable-modsecurity",
    "modsecurity-snippet",
    "satisfy",
    "server-snippet",
];

/// Annotations that other annotations read, or that ask for the behavior that Weft always has.
const READ_ELSEWHERE: &[&str] = &[
    "canary-by-header",
    "canary-by-header-value",
    "canary-by-cookie",
    "connection-proxy-header",
    "cors-allow-credentials",
    "cors-allow-headers",
    "cors-allow-methods",
    "cors-max-age",
    "force-ssl-redirect",
    "limit-burst-multiplier",
    "permanent-redirect-code",
    "proxy-send-timeout",
    "service-upstream",
    "session-cookie-max-age",
    "session-cookie-name",
    "session-cookie-path",
    "ssl-redirect",
    "temporal-redirect-code",
    "use-regex",
];

/// Annotations of an Ingress, without their prefix.
pub(super) struct Annotations<'a>(BTreeMap<&'a str, &'a str>);

/// Options of the routes of an Ingress.
#[derive(Default)]
pub(super) struct IngressOptions {
    /// Keys of a route whatever responds.
    pub(super) route: Table,
    /// Keys of a proxy.
    pub(super) proxy: Table,
    pub(super) rewrite: Option<String>,
    pub(super) redirect: Option<(String, u16)>,
    pub(super) app_root: Option<String>,
    pub(super) aliases: Vec<String>,
    /// Conditions of a canary.
    pub(super) conditions: Table,
    pub(super) is_regex: bool,
    pub(super) scheme: &'static str,
    /// Annotations that are not carried over, with the reason.
    pub(super) lost: Vec<(String, String)>,
    /// An annotation that protects the route, and is lost.
    pub(super) refused: Option<String>,
}

impl<'a> Annotations<'a> {
    pub(super) fn new(all: &'a BTreeMap<String, String>) -> Annotations<'a> {
        let own =
            all.iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, &**value)));
        Annotations(own.collect())
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }

    fn is_on(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// Returns true if all paths of the host are expressions, as with ingress-nginx.
    pub(super) fn uses_regex(&self) -> bool {
        self.is_on("use-regex") || self.get("rewrite-target").is_some_and(|it| it.contains('$'))
    }

    /// Returns true if requests without TLS are redirected.
    pub(super) fn redirects_to_https(&self, has_tls: bool) -> bool {
        self.is_on("force-ssl-redirect") || has_tls && self.get("ssl-redirect") != Some("false")
    }

    /// Returns the options that the annotations set.
    pub(super) fn options(&self) -> IngressOptions {
        let mut options = IngressOptions {
            scheme: "http",
            is_regex: self.uses_regex(),
            ..IngressOptions::default()
        };
        for (name, value) in &self.0 {
            if READ_ELSEWHERE.contains(name) {
                continue;
            }
            if let Err(reason) = self.apply(name, value, &mut options) {
                if PROTECTIONS.contains(name) || is_access(name) {
                    options.refused = Some((*name).to_owned());
                }
                options.lost.push(((*name).to_owned(), reason));
            }
        }
        options
    }

    /// Applies an annotation.
    fn apply(&self, name: &str, value: &str, options: &mut IngressOptions) -> Result<(), String> {
        match name {
            "canary" | "canary-weight" => self.apply_canary(name, value, options),
            "auth-url" | "auth-response-headers" | "auth-method" => {
                apply_auth(name, value, &mut options.route)
            }
            "enable-cors" | "cors-allow-origin" | "cors-expose-headers" => {
                self.apply_cors(name, value, &mut options.route)
            }
            _ if name.starts_with("limit-") => self.apply_limit(name, value, &mut options.route),
            _ if name.starts_with("proxy-") => apply_proxy(name, value, options),
            _ => self.apply_other(name, value, options),
        }
    }

    fn apply_other(
        &self,
        name: &str,
        value: &str,
        options: &mut IngressOptions,
    ) -> Result<(), String> {
        match name {
            "rewrite-target" => options.rewrite = Some(rewrite_target(value, self.uses_regex())?),
            "app-root" => {
                check_path(value)?;
                options.app_root = Some(value.to_owned());
            }
            "permanent-redirect" => {
                let status = self.redirect_status("permanent-redirect-code", 301)?;
                options.redirect = Some((redirect_target(value)?, status));
            }
            "temporal-redirect" => {
                let status = self.redirect_status("temporal-redirect-code", 302)?;
                options.redirect = Some((redirect_target(value)?, status));
            }
            "server-alias" => {
                let names = items(value);
                if let Some(invalid) = names.iter().find(|name| !is_host_name(name)) {
                    return Err(format!("{invalid:?} is no host name"));
                }
                options.aliases.extend(names.into_iter().map(str::to_owned));
            }
            "whitelist-source-range" | "allowlist-source-range" => {
                options.route.set("allow", networks(value)?);
            }
            "denylist-source-range" => options.route.set("deny", networks(value)?),
            "backend-protocol" => {
                options.scheme = match &*value.to_ascii_uppercase() {
                    "HTTP" => "http",
                    "GRPC" => "h2c",
                    other => return Err(format!("the protocol {other} is not supported")),
                };
            }
            "upstream-vhost" if is_host_name(value) => options.proxy.set_text("host", value),
            "upstream-hash-by" => {
                options.proxy.set_text("balance", "hash");
                options.proxy.set_text("hash_key", &placeholder(value)?);
            }
            "load-balance" => options.proxy.set_text(
                "balance",
                match value {
                    "round_robin" => "round-robin",
                    "ewma" => "random-two",
                    _ => return Err(format!("{value:?} is not known")),
                },
            ),
            "affinity" if value == "cookie" => {
                let cookie = self.get("session-cookie-name").unwrap_or("INGRESSCOOKIE");
                options.proxy.set_text("sticky_cookie", check_name(cookie)?);
                if let Some(age) = self.get("session-cookie-max-age") {
                    options.proxy.set_text("sticky_max_age", &format!("{}s", seconds(age)?));
                }
            }
            "x-forwarded-prefix" => {
                let mut fields = Table::default();
                fields.set("X-Forwarded-Prefix", quoted(&literal(check_value(value)?)));
                options.route.set_table("request_headers", &fields);
            }
            "enable-access-log" if value == "false" => {
                options.route.set("access_log", "false".to_owned());
            }
            "enable-access-log" => {}
            "client-body-buffer-size" => {
                let bytes = size(value)?.clamp(4 << 10, 64 << 20);
                options.proxy.set_text("request_buffer_bytes", &format!("{bytes}B"));
            }
            _ => return Err("Weft has no equivalent".to_owned()),
        }
        Ok(())
    }

    fn redirect_status(&self, name: &str, default: u16) -> Result<u16, String> {
        let status = self.get(name).map_or(Ok(default), str::parse);
        let status = status.ok().filter(|it| matches!(it, 301 | 302 | 303 | 307 | 308));
        status.ok_or_else(|| format!("{PREFIX}{name} is no status of a redirect"))
    }

    /// Sets the conditions of a canary. Its weight has no equivalent.
    fn apply_canary(
        &self,
        name: &str,
        value: &str,
        options: &mut IngressOptions,
    ) -> Result<(), String> {
        if name == "canary-weight" {
            return Err("only canaries by header and cookie are supported".to_owned());
        }
        if value != "true" {
            return Ok(());
        }
        let mut test = Table::default();
        let (kind, name, expected) =
            match (self.get("canary-by-header"), self.get("canary-by-cookie")) {
                (Some(header), _) => {
                    ("header", header, self.get("canary-by-header-value").unwrap_or("always"))
                }
                (None, Some(cookie)) => ("cookie", cookie, "always"),
                (None, None) => {
                    // Without conditions, the canary would get all requests.
                    options.conditions.set_text("method", "CANARY-WITHOUT-CONDITION");
                    return Err(
                        "a canary needs `canary-by-header` or `canary-by-cookie`".to_owned()
                    );
                }
            };
        test.set_text(check_name(name)?, &format!("= {}", check_value(expected)?));
        options.conditions.set_table(kind, &test);
        Ok(())
    }

    fn apply_cors(&self, name: &str, value: &str, route: &mut Table) -> Result<(), String> {
        match name {
            "enable-cors" if value != "true" => return Ok(()),
            "enable-cors" => {}
            "cors-allow-origin" => return Ok(()),
            _ => return Err("Weft has no equivalent".to_owned()),
        }
        let list = |name: &str| self.get(name).map(items);
        let origins = list("cors-allow-origin").unwrap_or_else(|| vec!["*"]);
        let is_any = origins.contains(&"*");
        route.set("cors", texts(origins));
        let methods = "GET, PUT, POST, DELETE, PATCH, OPTIONS";
        route.set(
            "cors_methods",
            texts(list("cors-allow-methods").unwrap_or_else(|| items(methods))),
        );
        let headers = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,\
                       Content-Type,Range,Authorization";
        route.set(
            "cors_headers",
            texts(list("cors-allow-headers").unwrap_or_else(|| items(headers))),
        );
        // Browsers refuse credentials with any origin.
        if self.get("cors-allow-credentials") != Some("false") && !is_any {
            route.set("cors_credentials", "true".to_owned());
        }
        let age = self.get("cors-max-age").map_or(Ok(1_728_000), seconds)?;
        route.set_text("cors_max_age", &format!("{}s", age.min(86_400)));
        Ok(())
    }

    fn apply_limit(&self, name: &str, value: &str, route: &mut Table) -> Result<(), String> {
        let number: u64 = value.parse().map_err(|_| format!("{value:?} is no number"))?;
        if number == 0 {
            return Ok(());
        }
        let multiplier = self.get("limit-burst-multiplier").and_then(|it| it.parse().ok());
        let burst = number.saturating_mul(multiplier.unwrap_or(5)).clamp(1, 1_000_000);
        match name {
            "limit-rps" | "limit-rpm" => {
                let unit = if name == "limit-rps" { "s" } else { "m" };
                route.set_text("rate", &format!("{number}/{unit}"));
                route.set("burst", burst.to_string());
            }
            "limit-connections" => {
                route.set("max_concurrent_requests", "1000000".to_owned());
                let number = number.min(1_000_000);
                route.set("max_concurrent_requests_per_client", number.to_string());
            }
            "limit-rate" => route.set_text("bandwidth", &format!("{number}KiB")),
            "limit-rate-after" => route.set_text("bandwidth_after", &format!("{number}KiB")),
            _ => return Err("Weft has no equivalent".to_owned()),
        }
        Ok(())
    }
}

/// Returns true for an annotation that restricts the clients of a route.
fn is_access(name: &str) -> bool {
    name.ends_with("-source-range") || name.starts_with("auth-")
}

fn apply_auth(name: &str, value: &str, route: &mut Table) -> Result<(), String> {
    match name {
        "auth-url" if value.contains('$') => {
            Err("variables in the URL are not supported".to_owned())
        }
        "auth-url" => {
            check_value(value)?;
            let host = value.split_once("://").map_or(value, |(_, rest)| rest);
            if ["127.", "[", "localhost", "0"].iter().any(|start| host.starts_with(start)) {
                return Err("the server is this process itself".to_owned());
            }
            route.set_text("forward_auth", value);
            Ok(())
        }
        "auth-response-headers" => {
            let names = items(value);
            names.iter().try_for_each(|name| check_name(name).map(drop))?;
            route.set("forward_auth_headers", texts(names));
            Ok(())
        }
        _ if value == "GET" => Ok(()),
        _ => Err("the method is GET".to_owned()),
    }
}

fn apply_proxy(name: &str, value: &str, options: &mut IngressOptions) -> Result<(), String> {
    let proxy = &mut options.proxy;
    let is_on = |value: &str| match value {
        "on" | "true" => Ok("true".to_owned()),
        "off" | "false" => Ok("false".to_owned()),
        other => Err(format!("{other:?} is neither on nor off")),
    };
    match name {
        // No limit of nginx is the largest size of Weft.
        "proxy-body-size" => match size(value)? {
            0 => options.route.set_text("max_body_bytes", "1024GiB"),
            bytes => options.route.set_text("max_body_bytes", &format!("{bytes}B")),
        },
        "proxy-connect-timeout" => {
            proxy.set_text("connect_timeout", &format!("{}s", seconds(value)?));
        }
        "proxy-read-timeout" => {
            let time = format!("{}s", seconds(value)?);
            ["response_timeout", "body_timeout", "tunnel_timeout"]
                .into_iter()
                .for_each(|key| proxy.set_text(key, &time));
        }
        "proxy-buffering" => proxy.set("buffer_responses", is_on(value)?),
        "proxy-request-buffering" => proxy.set("buffer_requests", is_on(value)?),
        "proxy-buffer-size" => {
            let bytes = size(value)?.clamp(8 << 10, 65_535);
            proxy.set_text("max_response_head_bytes", &format!("{bytes}B"));
        }
        "proxy-next-upstream-tries" => {
            let tries: u64 = value.parse().map_err(|_| format!("{value:?} is no number"))?;
            // The first attempt counts.
            let retries = if tries == 0 { 10 } else { (tries - 1).min(10) };
            proxy.set("max_retries", retries.to_string());
        }
        "proxy-http-version" if value == "1.1" => {}
        "proxy-max-temp-file-size" => {
            proxy.set_text("max_temp_file_bytes", &format!("{}B", size(value)?));
        }
        "proxy-cookie-domain" | "proxy-cookie-path" => {
            let (from, to) = value.split_once(' ').ok_or("expected two words")?;
            if from.starts_with('~') || value.contains('$') {
                return Err("expressions and variables are not supported".to_owned());
            }
            let mut change = Table::default();
            change.set_text(check_value(from)?, check_value(to.trim())?);
            let key = if name == "proxy-cookie-path" { "cookie_path" } else { "cookie_domain" };
            proxy.set_table(key, &change);
        }
        "proxy-redirect-from" if value == "off" => {
            proxy.set("rewrite_location", "false".to_owned());
        }
        "proxy-redirect-from" if value == "default" => {}
        _ => return Err("Weft has no equivalent".to_owned()),
    }
    Ok(())
}

/// Returns the items of a list with commas.
fn items(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

fn networks(value: &str) -> Result<String, String> {
    let networks = items(value);
    let is_network = |text: &&str| {
        let (address, length) = text.split_once('/').unwrap_or((*text, "0"));
        address.parse::<std::net::IpAddr>().is_ok()
            && length.parse::<u8>().is_ok_and(|it| it <= 128)
    };
    match networks.iter().find(|it| !is_network(it)) {
        Some(invalid) => Err(format!("{invalid:?} is no network")),
        None if networks.is_empty() => Err("there is no network".to_owned()),
        None => Ok(texts(networks)),
    }
}

/// Converts the target of a rewrite: `$1` is the first group of the path.
fn rewrite_target(value: &str, is_regex: bool) -> Result<String, String> {
    let mut target = String::new();
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        target += &literal(&rest[..at]);
        let behind = &rest[at + 1..];
        let digit = behind.chars().next().filter(|c| ('1'..='9').contains(c) && is_regex);
        let digit = digit.ok_or("only groups of the path such as $1 are supported")?;
        target += &format!("{{re.{digit}}}");
        rest = &behind[1..];
    }
    target += &literal(rest);
    check_value(&target)?;
    if !target.starts_with('/') && !target.starts_with("{re.") {
        return Err("a rewrite begins with a slash".to_owned());
    }
    Ok(if target.starts_with('/') { target } else { format!("/{target}") })
}

/// Checks the target of a redirect, which has no variables other than these.
fn redirect_target(value: &str) -> Result<String, String> {
    let target = literal(value).replace("$request_uri", "{uri}").replace("$host", "{host}");
    let is_plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'<' | b'>' | b'$');
    let has_form = ["http://", "https://", "/"].iter().any(|start| target.starts_with(start));
    if !has_form || target.starts_with("//") || !target.bytes().all(is_plain) {
        return Err(format!("{value:?} is no URL of a redirect, or has a variable"));
    }
    // The rest of the path is appended to a URL without placeholders, and it must not be.
    Ok(match target.contains('{') {
        true => target,
        false if target.contains(['?', '#']) => {
            return Err(format!("{value:?} has a query or a fragment"));
        }
        false => format!("{target}?{{query}}"),
    })
}

/// Returns the placeholder for a variable of nginx.
fn placeholder(value: &str) -> Result<String, String> {
    Ok(match value {
        "$request_uri" | "$uri" => "{uri}".to_owned(),
        "$host" => "{host}".to_owned(),
        "$remote_addr" | "$binary_remote_addr" => "{client_ip}".to_owned(),
        _ => {
            let name = |prefix| value.strip_prefix(prefix);
            let is_name = |name: &str| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            };
            match (name("$http_"), name("$cookie_"), name("$arg_")) {
                (Some(name), _, _) if is_name(name) => {
                    format!("{{header.{}}}", name.replace('_', "-"))
                }
                (_, Some(name), _) if is_name(name) => format!("{{cookie.{name}}}"),
                (_, _, Some(name)) if is_name(name) => format!("{{query.{name}}}"),
                _ => return Err(format!("the variable {value:?} is not supported")),
            }
        }
    })
}
