//! Responses that a change of fields applies to: by status, and by media type.

use std::fmt;

use weft::{Response, header};

use super::statuses::Statuses;

/// Responses with one of these statuses and one of these media types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::options) struct ResponseMatch {
    /// Empty: all.
    statuses: Vec<Statuses>,
    /// Empty: all, and responses without `Content-Type`.
    media_types: Vec<MediaRange>,
}

impl ResponseMatch {
    /// Parses words that are separated by spaces, such as `404 5xx`, `text/css image/*`, or `*` for
    /// all responses.
    pub(in crate::options) fn parse(text: &str) -> Result<ResponseMatch, String> {
        if text.trim() == "*" {
            return Ok(ResponseMatch::default());
        }
        let (types, statuses): (Vec<&str>, Vec<&str>) =
            text.split_whitespace().partition(|word| word.contains('/'));
        let invalid = || {
            format!(
                "expected statuses such as 404 or 5xx, and media types such as text/css or \
                 image/*, separated by spaces, or *, found {text:?}"
            )
        };
        let statuses = match (statuses.is_empty(), types.is_empty()) {
            (true, false) => Vec::new(),
            _ => Statuses::parse_list(&statuses.join(" ")).map_err(|_| invalid())?,
        };
        let media_types: Option<Vec<_>> = types.into_iter().map(MediaRange::parse).collect();
        Ok(ResponseMatch { statuses, media_types: media_types.ok_or_else(invalid)? })
    }

    pub(in crate::options) fn is_all(&self) -> bool {
        self.statuses.is_empty() && self.media_types.is_empty()
    }

    pub(in crate::options) fn contains(&self, response: &Response) -> bool {
        let status = response.status();
        (self.statuses.is_empty() || self.statuses.iter().any(|it| it.contains(status)))
            && (self.media_types.is_empty() || self.has_type_of(response))
    }

    fn has_type_of(&self, response: &Response) -> bool {
        let value = response.header(header::CONTENT_TYPE.as_str());
        let Some(value) = value.map(|value| value.as_bytes()) else { return false };
        let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
        let media_type = value[..end].trim_ascii();
        self.media_types.iter().any(|range| range.contains(media_type))
    }
}

impl fmt::Display for ResponseMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statuses = self.statuses.iter().map(Statuses::to_string);
        let words: Vec<String> =
            statuses.chain(self.media_types.iter().map(|it| it.0.clone())).collect();
        f.write_str(if words.is_empty() { "*" } else { "" })?;
        f.write_str(&words.join(" "))
    }
}

/// A media type, or all with one type, such as `image/*` (RFC 9110 §12.5.1), in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MediaRange(String);

impl MediaRange {
    fn parse(word: &str) -> Option<MediaRange> {
        let is_token = |part: &str| {
            let is_permitted = |b: u8| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b);
            !part.is_empty() && part.bytes().all(is_permitted)
        };
        let is_range = match word.split_once('/')? {
            ("*", "*") => true,
            (main, "*") => is_token(main),
            (main, sub) => is_token(main) && is_token(sub),
        };
        is_range.then(|| MediaRange(word.to_ascii_lowercase()))
    }

    fn contains(&self, media_type: &[u8]) -> bool {
        let all = self.0.as_bytes();
        match all.strip_suffix(b"*") {
            Some(b"*/") => true,
            Some(begin) => {
                media_type.get(..begin.len()).is_some_and(|it| it.eq_ignore_ascii_case(begin))
            }
            None => media_type.eq_ignore_ascii_case(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::StatusCode;

    #[test]
    fn parses_and_shows_statuses_and_media_types() {
        for (text, expected) in [
            (" 404  5xx ", Some("404 5xx")),
            ("text/CSS 2xx image/*", Some("2xx text/css image/*")),
            ("*/*", Some("*/*")),
            (" * ", Some("*")),
            ("", None),
            ("* 404", None),
            ("404 x", None),
            ("text/", None),
            ("/css", None),
            ("*/css", None),
            ("text/css;q=1", None),
            ("text/css/x", None),
            ("600 text/css", None),
        ] {
            let shown = ResponseMatch::parse(text).map(|it| it.to_string());
            assert_eq!(shown.as_deref().ok(), expected, "{text}");
        }
    }

    #[test]
    fn contains_responses_with_status_and_media_type() {
        let response = |status: u16, media_type: &'static str| {
            let response = Response::from(StatusCode::from_u16(status).unwrap());
            match media_type {
                "" => Response::new(response.status()),
                _ => response.with_header(header::CONTENT_TYPE, media_type),
            }
        };
        for (text, status, media_type, expected) in [
            ("*", 200, "", true),
            ("text/css", 200, "text/css", true),
            ("text/css", 404, "Text/CSS ; charset=utf-8", true),
            ("text/css", 200, "text/cssx", false),
            ("text/css", 200, "text/cs", false),
            ("text/css", 200, "", false),
            ("image/*", 200, "image/png", true),
            ("image/*", 200, "imagex/png", false),
            ("image/*", 200, "image", false),
            ("*/*", 200, "image/png", true),
            ("*/*", 200, "", false),
            ("2xx text/css", 200, "text/css", true),
            ("2xx text/css", 404, "text/css", false),
            ("2xx text/css", 200, "text/html", false),
            ("404 5xx text/css image/*", 503, "image/png", true),
        ] {
            let matched = ResponseMatch::parse(text).unwrap();
            let response = response(status, media_type);
            assert_eq!(matched.contains(&response), expected, "{text}: {status} {media_type}");
        }
    }
}
