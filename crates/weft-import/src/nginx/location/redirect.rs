//! Directives that redirect, or rewrite, all paths. Pure.

use crate::nginx::tree::Directive;
use crate::values::lists;

/// Returns the host of a redirect to HTTPS, as it is written; `None` for the requested host.
pub(crate) fn redirect_host(directive: &Directive) -> Option<&str> {
    let rest = directive.args.iter().find_map(|argument| argument.strip_prefix("https://"))?;
    if ["$host", "$http_host"].iter().any(|host| rest.starts_with(host)) {
        return None;
    }
    match rest.starts_with("$server_name") {
        true => Some("$server_name"),
        false => rest.split(['$', '/']).next(),
    }
}

/// Returns true for a redirect of all paths to the same path of HTTPS.
pub(crate) fn is_redirect_to_https(directive: &Directive) -> bool {
    let is_same = |url: &str, ends: &[&str]| {
        let rest = url.strip_prefix("https://");
        rest.is_some_and(|rest| ends.iter().any(|end| rest.ends_with(end)))
    };
    match (&*directive.name, directive.arg(0)) {
        ("return", "301" | "302" | "303" | "307" | "308") => {
            is_same(directive.arg(1), &["$request_uri", "$uri$is_args$args"])
        }
        ("return", url) => is_same(url, &["$request_uri"]),
        ("rewrite", regex) if matches_all(regex) => {
            let ends = ["$request_uri", "$request_uri?", "$1", "$uri"];
            is_same(directive.arg(1), &ends)
        }
        _ => false,
    }
}

/// Returns true if a `rewrite` responds with a redirect.
pub(crate) fn is_redirect(rewrite: &Directive) -> bool {
    matches!(rewrite.arg(2), "permanent" | "redirect") || rewrite.arg(1).contains("://")
}

/// Returns true for a regular expression that matches all paths.
pub(crate) fn matches_all(regex: &str) -> bool {
    lists("^ ^/ ^(.*)$ ^(.*) ^.*$ .* (.*) ^/(.*)$ ^/(.*) ^/.*$", regex)
}
