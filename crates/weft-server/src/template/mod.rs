//! Text with placeholders such as `{host}`, which are replaced by values of a request. Pure.
//!
//! A template is parsed once, when the configuration is loaded. A text without placeholders is
//! never expanded: [`Template::as_literal`] returns it.

pub(crate) mod captures; // groups of patterns
mod groups; // patterns whose groups a template may have
pub(crate) mod maps; // values of named maps
pub(crate) mod names; // names of placeholders, and suggestions
mod path_units; // decoded bytes of a path
mod pattern; // regular expressions
mod value; // values of a request

use std::fmt;

use weft::header::HeaderValue;
use weft::{Error, ErrorKind, Request, Response, StatusCode};
use weft_proto::semantics::path::encode;

use crate::template::captures::{Group, HostCaptures};
pub(crate) use groups::{GroupPatterns, PathPattern, check_host_groups};
pub(crate) use maps::{MapSource, MapValue, RequestMaps, map_names};
use names::Placeholder;
pub(crate) use names::nginx_variable;
pub(crate) use path_units::{Unit, units};
pub(crate) use pattern::{Pattern, PatternSet};
use value::Value;
pub(crate) use value::{
    PrefixLength, TraceIds, cookie, cookies, port, query_parameter, query_parameters,
};

/// Text with placeholders. `{{` is a literal brace; a brace that begins no name, as in JSON, stands
/// for itself.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Template {
    /// Text of the template in the configuration.
    source: Box<str>,
    parts: Box<[Part]>,
    /// Length of the literal text.
    literal_len: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    Literal(Box<str>),
    Placeholder(Placeholder),
}

/// Maximum length of all values that an expansion inserts, in bytes. It is the default of
/// `max_head_bytes`: a template that repeats a value cannot make a request cost more memory than
/// the largest request does.
const MAX_VALUE_BYTES: usize = 16 << 10;

const UNKNOWN_TO_ROUTER: &str = "is not known before the request has a route";

/// Reason that a template has no expansion for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpansionError {
    /// The values are longer than [`MAX_VALUE_BYTES`] together.
    TooLong,
    /// A value of the authority of a URL is empty, as `{host}` in a request without that field.
    IncompleteAuthority,
}

impl From<ExpansionError> for Response {
    fn from(error: ExpansionError) -> Response {
        match error {
            ExpansionError::TooLong => Response::new(StatusCode::URI_TOO_LONG),
            ExpansionError::IncompleteAuthority => {
                let reason = "the request has no value for the host of the redirect";
                let error = Error::new(ErrorKind::Malformed, reason);
                Response::from(&error).with_error(error)
            }
        }
    }
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// With an unknown name, and with `{upstream}`, which requests do not have. The message
    /// suggests another name.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let template = Template::parse_of_response(text)?;
        match template.has_upstream() {
            true => {
                Err("{upstream} is known in `response_headers` only; in a log it is the value \
                         upstream.address"
                    .to_owned())
            }
            false => Ok(template),
        }
    }

    /// Parses a template for a field of responses, which may have `{upstream}`.
    ///
    /// # Errors
    /// With an unknown name.
    pub(crate) fn parse_of_response(text: &str) -> Result<Template, String> {
        let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(brace) = rest.find('{') {
            literal.push_str(&rest[..brace]);
            rest = &rest[brace + 1..];
            if let Some(after) = rest.strip_prefix('{') {
                literal.push('{');
                rest = after;
            } else if let Some((name, after)) = placeholder_name(rest) {
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal).into()));
                }
                parts.push(Part::Placeholder(Placeholder::parse(name)?));
                rest = after;
            } else {
                literal.push('{');
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.into()));
        }
        let length = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Placeholder(_) => 0,
        };
        let literal_len = parts.iter().map(length).sum();
        Ok(Template { source: text.into(), parts: parts.into(), literal_len })
    }

    /// The template as it is written in the configuration.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The text, if it has no placeholders.
    pub(crate) fn as_literal(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    pub(crate) fn has_upstream(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Placeholder(Placeholder::Upstream)))
    }

    /// Returns an error if the template has `{user}`, for an option that applies before a request
    /// is authenticated.
    pub(crate) fn forbid_user(self) -> Result<Template, String> {
        let is_user = |part: &Part| matches!(part, Part::Placeholder(Placeholder::User));
        match self.parts.iter().any(is_user) {
            true => Err("{user} is not known yet: this applies before the authentication".into()),
            false => Ok(self),
        }
    }

    /// Returns an error if the template has a value that is not known before a request has a
    /// route.
    pub(crate) fn known_to_router(self) -> Result<Template, String> {
        if let Some(group) = self.groups().next() {
            return Err(format!("{{re.{group}}} {UNKNOWN_TO_ROUTER}"));
        }
        self.known_with_groups()
    }

    /// Returns an error as [`known_to_router`](Template::known_to_router) does, but permits groups.
    pub(crate) fn known_with_groups(self) -> Result<Template, String> {
        let is_known = |part: &Part| match part {
            Part::Literal(_) | Part::Placeholder(Placeholder::Capture(_)) => true,
            Part::Placeholder(placeholder) => placeholder.is_known_to_router(),
        };
        match self.parts.iter().all(is_known) {
            true => Ok(self),
            false => Err(format!("{:?} has a value that {UNKNOWN_TO_ROUTER}", self.source)),
        }
    }

    /// Names of maps among the placeholders.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Placeholder(Placeholder::Map(name)) => Some(&**name),
            _ => None,
        })
    }

    /// Groups of patterns among the placeholders.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.parts.iter().filter_map(|part| match part {
            Part::Placeholder(Placeholder::Capture(group)) => Some(group),
            _ => None,
        })
    }

    /// Groups of the patterns of hosts among the placeholders.
    pub(crate) fn host_groups(&self) -> impl Iterator<Item = &Group> {
        self.parts.iter().filter_map(|part| match part {
            Part::Placeholder(Placeholder::HostCapture(group)) => Some(group),
            _ => None,
        })
    }

    /// Expands the template to text, in which values are not escaped.
    pub(crate) fn expand(&self, request: &Request) -> Result<String, ExpansionError> {
        self.expand_with(request, |out, value| {
            out.push_str(&value.to_text());
            Ok(())
        })
    }

    /// Returns the length of the literal text at the beginning.
    fn literal_start(&self) -> usize {
        match self.parts.first() {
            Some(Part::Literal(text)) => text.len(),
            _ => 0,
        }
    }

    /// Expands the template to plain text, with the groups of a pattern other than the pattern of
    /// the route.
    pub(crate) fn expand_with_groups(
        &self,
        request: &Request,
        groups: Option<&HostCaptures>,
    ) -> Result<String, ExpansionError> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Placeholder(Placeholder::Capture(group)) => {
                    out.push_str(groups.and_then(|groups| groups.get(group)).unwrap_or_default());
                }
                Part::Placeholder(placeholder) => {
                    out.push_str(&Value::of(request, placeholder).to_text());
                }
            }
            if out.len() > self.literal_len + MAX_VALUE_BYTES {
                return Err(ExpansionError::TooLong);
            }
        }
        Ok(out)
    }

    /// Expands the template to the value of a field. A byte that no field can have becomes a space,
    /// and spaces at the ends are removed, so that no value adds a field or ends one.
    pub(crate) fn expand_field(&self, request: &Request) -> Result<HeaderValue, ExpansionError> {
        field_value(&self.expand(request)?)
    }

    /// Expands the template to the texts around each `{upstream}`.
    pub(crate) fn expand_around_upstream(
        &self,
        request: &Request,
    ) -> Result<Vec<String>, ExpansionError> {
        let is_upstream = |part: &Part| matches!(part, Part::Placeholder(Placeholder::Upstream));
        let texts = self.parts.split(is_upstream).map(|parts| {
            let literal_len = self.literal_len;
            Template { source: Box::default(), parts: parts.into(), literal_len }.expand(request)
        });
        texts.collect()
    }

    /// Expands the template to a part of a page. Values are escaped as text of HTML and as values
    /// of attributes in quotes.
    pub(crate) fn expand_html(&self, request: &Request) -> Result<String, ExpansionError> {
        self.expand_with(request, |out, value| {
            for c in value.to_text().chars() {
                match c {
                    '&' => out.push_str("&amp;"),
                    '<' => out.push_str("&lt;"),
                    '>' => out.push_str("&gt;"),
                    '"' => out.push_str("&quot;"),
                    '\'' => out.push_str("&#39;"),
                    c => out.push(c),
                }
            }
            Ok(())
        })
    }

    /// Expands the template to a URL, or to a path with a query. Values are percent-encoded for
    /// their position, so that they add neither a host, nor a query, nor a parameter of the query.
    ///
    /// Without a query, a question mark or an ampersand in front of `{query}` at the end is
    /// omitted.
    pub(crate) fn expand_url(&self, request: &Request) -> Result<String, ExpansionError> {
        let mut url = self.expand_with(request, push_url_value)?;
        let ends_in_query =
            matches!(self.parts.last(), Some(Part::Placeholder(Placeholder::Query)));
        if ends_in_query && request.query().is_none_or(str::is_empty) && url.ends_with(['?', '&']) {
            url.pop();
        }
        Ok(url)
    }

    fn expand_with(
        &self,
        request: &Request,
        push: impl Fn(&mut String, &Value<'_>) -> Result<(), ExpansionError>,
    ) -> Result<String, ExpansionError> {
        // Room for values of usual lengths, so that most expansions have one allocation.
        let mut out = String::with_capacity(self.literal_len + 48 * self.parts.len());
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Placeholder(placeholder) => push(&mut out, &Value::of(request, placeholder))?,
            }
            if out.len() > self.literal_len + MAX_VALUE_BYTES {
                return Err(ExpansionError::TooLong);
            }
        }
        Ok(out)
    }
}

impl MapValue {
    /// Creates the value of a template that was expanded; empty if that failed.
    pub(crate) fn expanded(template: &Template, text: Result<String, ExpansionError>) -> MapValue {
        match text {
            Ok(text) => MapValue { configured: template.literal_start(), text },
            Err(_) => MapValue::literal(""),
        }
    }
}

/// Returns a text as the value of a field, without bytes that no field can have.
pub(crate) fn field_value(text: &str) -> Result<HeaderValue, ExpansionError> {
    let is_control = |c: char| c.is_ascii_control() && c != '\t';
    let value = text.replace(is_control, " ");
    // Bytes beyond ASCII are permitted (`obs-text` of RFC 9110 §5.5).
    let value = HeaderValue::from_bytes(value.trim_ascii().as_bytes());
    value.map_err(|_| ExpansionError::TooLong)
}

/// Splits `name}…` behind an opening brace. Returns `None` if it is no placeholder.
fn placeholder_name(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once('}')?;
    let is_permitted = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    (!name.is_empty() && name.bytes().all(is_permitted)).then_some((name, rest))
}

/// Part of a URL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Authority,
    Path,
    Query,
}

/// Returns the position at the end of a URL or path.
fn position(url: &str) -> Position {
    if url.contains(['?', '#']) {
        return Position::Query;
    }
    match url.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') && !rest.contains('/') => Position::Authority,
        _ => Position::Path,
    }
}

/// Appends a value, percent-encoded for its position.
fn push_url_value(out: &mut String, value: &Value<'_>) -> Result<(), ExpansionError> {
    match (position(out), value) {
        (Position::Authority, value) if value.to_text().is_empty() => {
            return Err(ExpansionError::IncompleteAuthority);
        }
        (position, Value::Mapped(value)) => {
            let (configured, rest) = value.text.split_at(value.configured);
            let has_host = configured.split_once("://").is_none_or(|(_, host)| host.contains('/'));
            let is_open = position == Position::Authority
                || out.is_empty() && !(has_host && configured.contains('/'));
            if is_open && !rest.is_empty() {
                return Err(ExpansionError::IncompleteAuthority);
            }
            escape(out, configured);
            encode(out, rest.as_bytes());
        }
        (Position::Authority, Value::Authority(text)) => escape(out, text),
        (Position::Query, Value::Query(text)) => escape(out, text),
        (Position::Authority | Position::Path, Value::Target(text)) => escape(out, text),
        (Position::Path, Value::Path(text) | Value::Capture(text)) => escape(out, text),
        // The slash ends the authority.
        (Position::Authority, Value::Path(text)) if text.starts_with('/') => escape(out, text),
        (Position::Authority, value) => {
            let mut encoded = String::new();
            encode(&mut encoded, value.to_text().as_bytes());
            out.push_str(&encoded.replace('/', "%2F"));
        }
        (Position::Path | Position::Query, value) => encode(out, value.to_text().as_bytes()),
    }
    Ok(())
}

/// Appends `text`, percent-encoding the characters that a URI reference cannot contain and the
/// backslash, which browsers treat as a slash. Existing percent-encodings stay unchanged.
pub(crate) fn escape(out: &mut String, text: &str) {
    for b in text.bytes() {
        match b {
            b'\\' | b'"' | b'<' | b'>' | b'#' => out.push_str(&format!("%{b:02X}")),
            b'!'..=b'~' => out.push(b.into()),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

#[cfg(test)]
mod tests;
