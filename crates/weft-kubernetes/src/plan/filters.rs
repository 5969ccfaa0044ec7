//! Filters of a rule → keys of a route.

use super::fields::{check_name, check_value};
use super::hostnames::is_host_name;
use super::matches::{PathRule, check_path};
use super::toml::{Table, literal, quoted, texts};
use crate::objects::http_route::{
    CorsFilter, HeaderModifier, HeaderValue, HttpFilter, PathModifier, RequestRedirect, UrlRewrite,
};

/// Filters of a rule.
#[derive(Debug, Default)]
pub(super) struct Filters<'a> {
    /// Options of the route.
    options: Table,
    redirect: Option<&'a RequestRedirect>,
    rewrite: Option<&'a UrlRewrite>,
}

/// The listener for which a redirect is made.
#[derive(Clone, Copy)]
pub(super) struct RedirectOrigin {
    pub(super) port: u16,
    pub(super) is_tls: bool,
}

impl<'a> Filters<'a> {
    /// Reads the filters of a rule.
    ///
    /// # Errors
    /// With a message, if a filter is invalid or not supported. Requests must not pass it by.
    pub(super) fn parse(
        filters: impl Iterator<Item = &'a HttpFilter>,
    ) -> Result<Filters<'a>, String> {
        let mut found = Filters::default();
        let (mut set, mut remove) = (Table::default(), Vec::new());
        let (mut response_set, mut response_remove) = (Table::default(), Vec::new());
        for filter in filters {
            match (&*filter.kind, filter) {
                (
                    "RequestHeaderModifier",
                    HttpFilter { request_header_modifier: Some(changes), .. },
                ) => add_changes(changes, &mut set, &mut remove)?,
                (
                    "ResponseHeaderModifier",
                    HttpFilter { response_header_modifier: Some(changes), .. },
                ) => add_changes(changes, &mut response_set, &mut response_remove)?,
                ("RequestRedirect", HttpFilter { request_redirect: Some(redirect), .. }) => {
                    found.redirect = Some(redirect);
                }
                ("URLRewrite", HttpFilter { url_rewrite: Some(rewrite), .. }) => {
                    found.rewrite = Some(rewrite);
                }
                ("CORS", HttpFilter { cors: Some(cors), .. }) => {
                    found.options.extend(&cors_options(cors));
                }
                (kind, _) => return Err(format!("the filter {kind} is not supported")),
            }
        }
        let names = |names: &[String]| texts(names.iter().map(String::as_str));
        found.options.set_table("request_headers", &set);
        if !remove.is_empty() {
            found.options.set("remove_request_headers", names(&remove));
        }
        found.options.set_table("response_headers", &response_set);
        if !response_remove.is_empty() {
            found.options.set("remove_response_headers", names(&response_remove));
        }
        Ok(found)
    }

    pub(super) fn options(&self) -> &Table {
        &self.options
    }

    /// Returns the keys of a redirect, if the rule has one, for each path that the route needs: a
    /// prefix whose replacement has no slash at its end needs an exact path, too.
    pub(super) fn redirect(
        &self,
        path: &PathRule,
        origin: RedirectOrigin,
    ) -> Result<Option<Vec<(PathRule, Table)>>, String> {
        let Some(redirect) = self.redirect else { return Ok(None) };
        let base = redirect_base(redirect, origin)?;
        let status = redirect.status_code.unwrap_or(302);
        let table = |target: String| {
            let mut table = self.options.clone();
            table.set_text("redirect", &target);
            table.set("status", status.to_string());
            table
        };
        let Some(modifier) = &redirect.path else {
            return Ok(Some(vec![(path.clone(), table(format!("{base}{{uri}}")))]));
        };
        Ok(Some(match Replacement::parse(modifier, path)? {
            Replacement::Whole(replacement) => {
                let target = format!("{base}{}?{{query}}", url_path(replacement));
                vec![(path.clone(), table(target))]
            }
            Replacement::Prefix { prefix, replacement } => {
                let replacement = url_path(replacement.trim_end_matches('/'));
                let rest = table(format!("{base}{replacement}{{rest}}?{{query}}"));
                let mut routes = vec![(path.clone(), rest)];
                if prefix != "/" {
                    let target = if replacement.is_empty() { "/" } else { &replacement };
                    let exact = table(format!("{base}{target}?{{query}}"));
                    routes.push((PathRule::Exact(prefix.to_owned()), exact));
                }
                routes
            }
        }))
    }

    /// Returns the path behind the URL of the upstream, and sets the keys by which it gets another
    /// path or host.
    pub(super) fn rewrite(&self, path: &PathRule, table: &mut Table) -> Result<String, String> {
        let kept = path.removed_prefix().map(url_path).unwrap_or_default();
        let Some(rewrite) = self.rewrite else { return Ok(kept) };
        if let Some(hostname) = &rewrite.hostname {
            match is_host_name(hostname) {
                true => table.set_text("host", hostname),
                false => return Err(format!("the host {hostname:?} is invalid")),
            }
        }
        let Some(modifier) = &rewrite.path else { return Ok(kept) };
        match Replacement::parse(modifier, path)? {
            Replacement::Whole(replacement) => {
                table.set_text("rewrite", &literal(&url_path(replacement)));
                Ok(String::new())
            }
            Replacement::Prefix { prefix, replacement } => {
                let replacement = url_path(replacement.trim_end_matches('/'));
                if prefix == "/" && !replacement.is_empty() {
                    table.set_text("rewrite", &format!("{}{{path}}", literal(&replacement)));
                    return Ok(String::new());
                }
                Ok(replacement)
            }
        }
    }
}

/// A path that replaces another one.
enum Replacement<'a> {
    Whole(&'a str),
    Prefix { prefix: &'a str, replacement: &'a str },
}

impl<'a> Replacement<'a> {
    fn parse(modifier: &'a PathModifier, path: &'a PathRule) -> Result<Replacement<'a>, String> {
        let given = match (&*modifier.kind, path) {
            ("ReplaceFullPath", _) => modifier.replace_full_path.as_deref().unwrap_or("/"),
            ("ReplacePrefixMatch", PathRule::Prefix(_)) => {
                modifier.replace_prefix_match.as_deref().unwrap_or("/")
            }
            ("ReplacePrefixMatch", _) => {
                return Err("ReplacePrefixMatch needs a match of the type PathPrefix".to_owned());
            }
            (kind, _) => return Err(format!("the replacement {kind} is not supported")),
        };
        let given = if given.is_empty() { "/" } else { given };
        check_path(given)?;
        Ok(match path {
            PathRule::Prefix(prefix) if modifier.kind == "ReplacePrefixMatch" => {
                Replacement::Prefix { prefix, replacement: given }
            }
            _ => Replacement::Whole(given),
        })
    }
}

/// Returns scheme, host and port of the target of a redirect.
fn redirect_base(redirect: &RequestRedirect, origin: RedirectOrigin) -> Result<String, String> {
    let own = if origin.is_tls { "https" } else { "http" };
    let scheme = redirect.scheme.as_deref().unwrap_or(own);
    let well_known = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return Err(format!("the scheme {scheme:?} of a redirect is not supported")),
    };
    let host = match &redirect.hostname {
        Some(host) if !is_host_name(host) => return Err(format!("the host {host:?} is invalid")),
        Some(host) => host,
        None => "{host}",
    };
    let port = match (redirect.port, &redirect.scheme) {
        (Some(port), _) => port,
        (None, Some(_)) => well_known,
        (None, None) => origin.port,
    };
    Ok(match port == well_known {
        true => format!("{scheme}://{host}"),
        false => format!("{scheme}://{host}:{port}"),
    })
}

/// Percent-encodes the bytes of a decoded path that a URL must not have.
pub(super) fn url_path(path: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$&'()+,=:@/".contains(&b);
    let mut encoded = String::with_capacity(path.len());
    for b in path.bytes() {
        match is_plain(b) {
            true => encoded.push(b.into()),
            false => encoded += &format!("%{b:02X}"),
        }
    }
    encoded
}

fn add_changes(
    changes: &HeaderModifier,
    table: &mut Table,
    remove: &mut Vec<String>,
) -> Result<(), String> {
    for HeaderValue { name, value } in &changes.set {
        table.set(check_name(name)?, quoted(&literal(check_value(value)?)));
    }
    for HeaderValue { name, value } in &changes.add {
        let key = format!("+{}", check_name(name)?);
        table.set(&key, quoted(&literal(check_value(value)?)));
    }
    for name in &changes.remove {
        remove.push(check_name(name)?.to_owned());
    }
    Ok(())
}

fn cors_options(cors: &CorsFilter) -> Table {
    let list = |items: &[String]| texts(items.iter().map(String::as_str));
    let mut table = Table::default();
    table.set("cors", list(&cors.allow_origins));
    if !cors.allow_methods.is_empty() {
        table.set("cors_methods", list(&cors.allow_methods));
    }
    if !cors.allow_headers.is_empty() {
        table.set("cors_headers", list(&cors.allow_headers));
    }
    if cors.allow_credentials == Some(true) {
        table.set("cors_credentials", "true".to_owned());
    }
    if let Some(seconds) = cors.max_age {
        table.set_text("cors_max_age", &format!("{seconds}s"));
    }
    table
}
