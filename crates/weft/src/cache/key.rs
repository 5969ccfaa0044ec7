//! Keys: the resource that a request names, and the parts of the request that select a response.

use weft_proto::headers::Headers;
use weft_proto::list::list_members;

use crate::message::request_head::RequestHead;

/// Maximum length of a key. Requests with a longer one pass the cache.
const MAX_KEY_BYTES: usize = 8_192;

/// Fields by which some applications let a client choose another host, path or method. They are not
/// part of the URL, so that a response that depends on them would be stored for everybody.
const OVERRIDES: [&str; 14] = [
    "forwarded",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
];

/// The parameters of a query that are part of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum QueryKey {
    /// All, in the order received. The default.
    #[default]
    All,
    /// Parameters with one of these names.
    Only(Vec<String>),
    /// All but the parameters with one of these names, such as `utm_source`.
    Except(Vec<String>),
}

/// The settings that make the key of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct KeySettings {
    pub(super) query: QueryKey,
    pub(super) fields: Vec<String>,
    pub(super) cookies: Vec<String>,
}

/// The key of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// `scheme://host/path?query`.
    pub(super) url: Box<str>,
    /// Values of the request that select a response of the resource: a line for each.
    pub(super) extras: Box<[u8]>,
}

impl QueryKey {
    fn contains(&self, parameter: &str) -> bool {
        let name = parameter.split('=').next().unwrap_or(parameter);
        match self {
            QueryKey::All => true,
            QueryKey::Only(names) => names.iter().any(|other| other == name),
            QueryKey::Except(names) => names.iter().all(|other| other != name),
        }
    }

    fn push(&self, url: &mut String, query: &str) {
        if *self == QueryKey::All {
            url.push('?');
            url.push_str(query);
            return;
        }
        let mut separator = '?';
        for parameter in query.split('&').filter(|parameter| self.contains(parameter)) {
            url.push(separator);
            url.push_str(parameter);
            separator = '&';
        }
    }
}

impl Key {
    /// Returns the key of a request with this scheme; `None` if it has no host, or a key that is
    /// too long.
    pub(super) fn of(scheme: &str, head: &RequestHead, settings: &KeySettings) -> Option<Key> {
        let query = head.query();
        let path = (head.mount(), head.path(), query.map_or(0, |query| 1 + query.len()));
        let url = url(scheme, head.authority()?, path, |url| {
            if let Some(query) = query {
                settings.query.push(url, query);
            }
        });
        let extras = extras(head, settings);
        (url.len() + extras.len() <= MAX_KEY_BYTES).then(|| Key { url: url.into(), extras })
    }
}

/// Composes a URL: the host in lowercase, without a default port. The path has a mount, the rest
/// and the length of the query with its question mark.
fn url(
    scheme: &str,
    authority: &str,
    (mount, path, query): (&str, &str, usize),
    push_query: impl FnOnce(&mut String),
) -> String {
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    let host = authority.strip_suffix(default_port).unwrap_or(authority);
    let length = scheme.len() + "://".len() + host.len() + mount.len() + path.len() + query;
    let mut url = String::with_capacity(length);
    url.push_str(scheme);
    url.push_str("://");
    let host_start = url.len();
    url.push_str(host);
    url[host_start..].make_ascii_lowercase();
    url.push_str(mount);
    url.push_str(path);
    push_query(&mut url);
    url
}

/// Returns an absolute URL in the form of keys, or `None` if it is none.
pub(super) fn normalized(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let rest = rest.split('#').next().unwrap_or(rest);
    let path = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    (!authority.is_empty()).then(|| url(&scheme, authority, ("", &path, 0), |_| {}))
}

/// Returns the URL of `reference` relative to the URL of a key, if it has the same origin (RFC 9111
/// §4.4).
pub(super) fn same_origin(key: &str, reference: &str) -> Option<String> {
    let path_start = key.find("://")? + "://".len();
    let origin = &key[..path_start + key[path_start..].find('/')?];
    if reference.starts_with('/') && !reference.starts_with("//") {
        return normalized(&format!("{origin}{reference}"));
    }
    if reference.is_empty() {
        return Some(key.to_owned());
    }
    if !reference.contains("://") && !reference.starts_with("//") {
        let folder = &key[..=key.split('?').next().unwrap_or(key).rfind('/')?];
        return normalized(&format!("{folder}{reference}"));
    }
    let url = normalized(reference)?;
    (url.starts_with(origin) && url[origin.len()..].starts_with('/')).then_some(url)
}

fn extras(head: &RequestHead, settings: &KeySettings) -> Box<[u8]> {
    let (headers, mut extras) = (head.headers(), Vec::new());
    let mut add = |name: &str, value: &[u8]| {
        extras.extend_from_slice(name.as_bytes());
        extras.push(b':');
        extras.extend_from_slice(value);
        extras.push(b'\n');
    };
    // Applications and proxies may see the target as it was received: a client that spells a path
    // otherwise, with `//` or `..`, gets a response of its own.
    if let Some(received) = head.path_and_query_before_changes() {
        add(":path", received.as_bytes());
    }
    for name in &settings.fields {
        headers.get_all(name).for_each(|value| add(name, value));
    }
    for (name, value) in headers.iter_bytes() {
        if let Some(name) = overriding(name) {
            add(name, value);
        }
    }
    for name in &settings.cookies {
        cookies(headers, name).for_each(|value| add(name, value));
    }
    extras.into()
}

/// Returns the name in lowercase of a field by which a client could choose another resource.
fn overriding(name: &[u8]) -> Option<&'static str> {
    let (first, length) = (name.first()?.to_ascii_lowercase(), name.len());
    // Most names end here.
    if !matches!(first, b'f' | b'x') {
        return None;
    }
    let mut overrides = OVERRIDES.iter().filter(|other| other.len() == length);
    overrides.find(|other| other.as_bytes().eq_ignore_ascii_case(name)).copied()
}

fn cookies<'a>(headers: &'a Headers, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = headers.get_all("cookie").flat_map(|line| line.split(|&byte| byte == b';'));
    pairs.map(<[u8]>::trim_ascii).filter(move |pair| {
        pair.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    })
}

/// Returns the tags of a response: the members of `Cache-Tag`, and the words of `Surrogate-Key`.
pub(super) fn tags<'a>(
    cache_tag: impl Iterator<Item = &'a [u8]>,
    words: impl Iterator<Item = &'a [u8]>,
) -> Vec<Box<str>> {
    let members = cache_tag.flat_map(list_members);
    let words = words.flat_map(|line| line.split(u8::is_ascii_whitespace));
    let tags = members.chain(words).filter(|tag| !tag.is_empty()).take(MAX_TAGS);
    tags.map(|tag| String::from_utf8_lossy(tag).into()).collect()
}

/// Maximum number of tags of a response; further ones are ignored.
const MAX_TAGS: usize = 256;
