//! `redirect`: redirects a path and everything below it.

use std::sync::Arc;

use weft::{Request, Response, StatusCode};
use weft_config::{Key, SectionKeys, ValueKind, quoted};

use super::form::{OpenContext, Operator, PlanContext, RouteApp, RouteForm, section_keys};
use super::response_keys::{show_status, status_code, status_key};
use super::{ResponseFuture, respond_now};
use crate::options::RouteOptions;
use crate::template::{Template, escape, nginx_variable};

/// Values of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RedirectForm {
    /// Template of the target.
    to: String,
    /// `None`: 301 (RFC 9110 §15.4.2).
    status: Option<u16>,
}

static KEYS: [Key<RedirectForm>; 2] = [
    Key {
        name: "redirect",
        help: "URL to redirect to",
        kind: ValueKind::Text(|form, to| {
            form.to = to.value;
            Ok(())
        }),
        show: |form| quoted(&form.to),
        ..Key::FILE_ONLY
    },
    status_key(|form, number| form.status = Some(number as u16), |form| show_status(form.status)),
];

impl RouteForm for RedirectForm {
    type App = Redirect;

    fn name() -> &'static str {
        KEYS[0].name
    }

    fn keys() -> SectionKeys<RedirectForm> {
        section_keys(&KEYS)
    }

    fn operator() -> Option<Operator<RedirectForm>> {
        let parse = |url: &str, _: &_| Ok(RedirectForm { to: url.to_owned(), status: None });
        Some(Operator { sign: "<<", argument: "URL", subject: "a redirect", parse })
    }

    fn plan(&mut self, _: &mut RouteOptions, context: &PlanContext<'_>) -> Result<(), String> {
        if let Some((variable, placeholder)) = nginx_variable(&self.to) {
            return Err(format!(
                "`${variable}` is a variable of nginx, and clients would get it as it is; its value \
                 is {{{placeholder}}} here"
            ));
        }
        let to = context.patterns.parse_template(&self.to)?;
        check_redirect(&to, context.has_rest)?;
        match self.status.get_or_insert(301) {
            301 | 302 | 303 | 307 | 308 => Ok(()),
            status => {
                Err(format!("the status of a redirect is 301, 302, 303, 307 or 308, not {status}"))
            }
        }
    }

    fn open(&self, _: &OpenContext<'_>) -> Result<Redirect, String> {
        let target = Template::parse(&self.to)?;
        Ok(Redirect { target: Arc::new(target), status: status_code(self.status) })
    }

    fn template(&self) -> Option<&str> {
        Some(&self.to)
    }

    fn literal_redirect(&self) -> Option<String> {
        Template::parse(&self.to).ok()?.as_literal().map(str::to_owned)
    }

    fn is_redirect(&self) -> bool {
        true
    }
}

/// Validates the target of a redirect. If it has no placeholders, and `appends_rest` is set, the
/// rest of the path and the query of the request are appended to it, so that it has no query and no
/// fragment of its own.
fn check_redirect(target: &Template, appends_rest: bool) -> Result<(), String> {
    let to = target.source();
    let authority =
        ["https://", "http://", "{scheme}://"].iter().find_map(|it| to.strip_prefix(it));
    let begins_with_path = |to: &str| PATHS.iter().any(|path| to.starts_with(path));
    let has_valid_form = match authority {
        Some(rest) => !rest.is_empty() && !rest.starts_with(['/', ':', '@']),
        None => {
            (to.starts_with('/') && !to.starts_with("//"))
                || begins_with_path(to)
                || to.starts_with(MAP)
        }
    };
    if !has_valid_form {
        return Err(format!(
            "expected a redirect to https://HOST/PATH or to /PATH on the same host, found {to:?}"
        ));
    }
    if appends_rest && target.as_literal().is_some() && to.contains(['?', '#']) {
        return Err(format!(
            "the redirect to {to:?} has a query or a fragment; the rest of the path and the query \
             of the request follow its target"
        ));
    }
    if !to.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'<' | b'>')) {
        return Err(format!("the redirect to {to:?} has a byte that must be percent-encoded"));
    }
    if let Some(name) = authority.and_then(open_end) {
        return Err(format!(
            "the redirect to {to:?} would let clients choose the host: {name} ends its name; write \
             a domain or a slash behind it"
        ));
    }
    Ok(())
}

/// Placeholders whose values begin with a slash.
const PATHS: [&str; 3] = ["{path}", "{rest}", "{uri}"];

/// Beginning of a placeholder whose value may be a URL of the configuration.
const MAP: &str = "{map.";

/// Returns the first placeholder in the authority of a URL whose values could extend the name of
/// the host or choose the port. These placeholders cannot:
/// - the host and the port of the request,
/// - groups of the pattern of the host,
/// - a placeholder before a label of the name,
/// - a map: a value with parts of the request is no host.
fn open_end(url: &str) -> Option<&str> {
    let starts = PATHS.iter().chain(&["/", "?", "#"]).filter_map(|start| url.find(start));
    let authority = &url[..starts.min().unwrap_or(url.len())];
    authority.match_indices('{').find_map(|(at, _)| {
        let (name, behind) = authority[at..].split_once('}')?;
        let is_label = behind.strip_prefix('.').is_some_and(|label| {
            label.starts_with(|c: char| c == '{' || c.is_ascii_alphanumeric())
        });
        let is_closed = is_label
            || matches!(name, "{host" | "{port")
            || name.starts_with("{host.")
            || name.starts_with(MAP);
        (!is_closed).then(|| &authority[at..=at + name.len()])
    })
}

/// Redirects to a target URL. If it has no placeholders, the rest of the request's path and the
/// query are appended. A query in the target replaces the query of the request. A target without
/// placeholders has neither a query nor a fragment if requests have a rest of the path.
#[derive(Clone)]
pub(crate) struct Redirect {
    target: Arc<Template>,
    status: StatusCode,
}

impl RouteApp for Redirect {
    fn for_worker(&self, _: bool) -> Redirect {
        self.clone()
    }

    fn call(&self, request: Request) -> ResponseFuture {
        respond_now(self.response(&request))
    }

    fn takes_path(&self, _: bool) -> bool {
        true
    }
}

impl Redirect {
    fn response(&self, request: &Request) -> Response {
        let location = match self.target.as_literal() {
            Some(target) => location(target, request.path(), request.query()),
            None => match self.target.expand_url(request) {
                // A map without a value for the request.
                Ok(url) if !is_target(&url) => return Response::not_found(),
                Ok(url) => on_same_host(url),
                Err(error) => return error.into(),
            },
        };
        Response::redirect(self.status, &location)
    }
}

/// Returns true for a path and for a URL.
fn is_target(url: &str) -> bool {
    ["/", "http://", "https://"].iter().any(|start| url.starts_with(start))
}

/// Removes all but one of the slashes at the beginning of a path: two begin the name of a host, and
/// a value behind the slash of a template may begin with another one.
fn on_same_host(url: String) -> String {
    match url.strip_prefix("//") {
        Some(rest) => format!("/{}", rest.trim_start_matches('/')),
        None => url,
    }
}

/// Joins the target and the rest of a path with exactly one slash, so that the rest can neither
/// extend the target's host name nor start an authority of its own.
fn location(target: &str, rest: &str, query: Option<&str>) -> String {
    let (target, fragment) = target.split_at(target.find('#').unwrap_or(target.len()));
    let mut location = String::with_capacity(target.len() + rest.len() + 1);
    match rest.trim_start_matches('/') {
        // A named route has the whole path of the request, which is no part of a query.
        _ if target.contains('?') => location.push_str(target),
        // The asterisk-form of `OPTIONS *` has no path (RFC 9112 §3.2.4).
        "" | "*" => location.push_str(target),
        rest => {
            location.push_str(target.strip_suffix('/').unwrap_or(target));
            location.push('/');
            escape(&mut location, rest);
        }
    }
    match query {
        // A question mark without a query removes the query.
        _ if target.ends_with('?') => drop(location.pop()),
        Some(query) if !target.contains('?') => {
            location.push('?');
            escape(&mut location, query);
        }
        _ => {}
    }
    location + fragment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_redirect_targets() {
        for (to, is_good) in [
            ("https://example.org", true),
            ("http://example.org:8080/a/", true),
            ("/", true),
            ("/new/", true),
            ("//evil.example/", false),
            ("example.org", false),
            ("ftp://example.org/", false),
            ("https://", false),
            ("https:///a", false),
            ("https://a/?b", false),
            ("https://a/#b", false),
            ("https://a/\r\nX: y", false),
            ("/\\evil.example", false),
            ("/días", false),
            ("https://{host}{uri}", true),
            ("{scheme}://www.{host}:{port}/a?b={query.c}#d", true),
            ("{path}?{query}", true),
            ("https://{query.sub}.example.org/", true),
            ("https://example.org{query.a}", false),
            ("https://{query.a}", false),
            ("https://{query.a}:8443/", false),
            ("https://{query.a}example.org/", false),
            ("https://{query.a}.:80/", false),
            ("https://{host}{query.a}/", false),
            ("https://a:{query.a}/", false),
            ("https://{query.a}.{query.b}.example.org:{port}/", true),
            ("https://{query.a}.{host}", true),
            ("{query.a}", false),
        ] {
            let to = Template::parse(to).unwrap();
            assert_eq!(check_redirect(&to, true).is_ok(), is_good, "{to:?}");
        }
    }

    #[test]
    fn appends_path_and_query_to_target() {
        for (target, rest, query, expected) in [
            ("https://a/new/", "/", None, "https://a/new/"),
            ("https://a/new", "/", None, "https://a/new"),
            ("https://a/new/", "/b/c", Some("d=e"), "https://a/new/b/c?d=e"),
            ("https://a/new", "/b", None, "https://a/new/b"),
            ("https://a", "/.evil.example", None, "https://a/.evil.example"),
            ("https://a", "/@evil.example", None, "https://a/@evil.example"),
            ("/", "/", Some("q"), "/?q"),
            ("/", "//evil.example", None, "/evil.example"),
            ("/", "/\\evil.example", None, "/%5Cevil.example"),
            ("/new/", "/a%2Fb%0d%0aX:y", None, "/new/a%2Fb%0d%0aX:y"),
            ("/new/", "/a b\r\nX: y", Some("é\n"), "/new/a%20b%0D%0AX:%20y?%C3%A9%0A"),
            ("/new/", "*", None, "/new/"),
            ("/new?a=b", "/", Some("c"), "/new?a=b"),
            ("/new?", "/", Some("c"), "/new"),
            ("/new#d", "/", Some("c"), "/new?c#d"),
            ("/new?a#d", "/", Some("c"), "/new?a#d"),
            ("/new?", "/b", Some("c"), "/new"),
        ] {
            assert_eq!(location(target, rest, query), expected, "{target} {rest}");
        }
    }
}
