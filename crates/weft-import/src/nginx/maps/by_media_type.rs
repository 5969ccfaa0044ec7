//! `map` over the media type of the response. Pure.

use super::map::{Map, MapKey};
use crate::Target;
use crate::nginx::tree::Directive;

/// Values by the media type of the response.
pub(crate) struct ValuesByMediaType<'a> {
    pub(crate) default: &'a str,
    /// Media types that are separated by spaces, or such as `image/*`, with their values. Later
    /// ones take precedence.
    pub(crate) entries: Vec<(String, &'a str)>,
}

impl<'a> ValuesByMediaType<'a> {
    /// Reads a block; `None` for a map over something else, or with other expressions than the
    /// begin of a media type.
    pub(crate) fn of(
        directive: &'a Directive,
        target: &'a dyn Target,
    ) -> Option<ValuesByMediaType<'a>> {
        let is_type =
            matches!(directive.arg(0), "$sent_http_content_type" | "$upstream_http_content_type");
        let map = Map::of(directive, target).filter(|_| is_type)?;
        let mut expressions = Vec::new();
        let mut texts = Vec::new();
        for (key, value) in &map.entries {
            let (list, range) = match key {
                MapKey::Text(text) => (&mut texts, text.to_ascii_lowercase()),
                MapKey::Regex(regex) => (&mut expressions, range_of(regex)?),
            };
            // The first of equal keys takes precedence.
            if !list.iter().any(|(known, _)| *known == range) {
                list.push((range, *value));
            }
        }
        expressions.reverse();
        let entries = expressions.into_iter().chain(texts);
        let entries = entries.map(|(range, value)| (with_synonyms(range), value)).collect();
        Some(ValuesByMediaType { default: map.default, entries })
    }
}

/// Adds the names that a media type has in the tables of other servers.
fn with_synonyms(range: String) -> String {
    const SYNONYMS: [&[&str]; 3] = [
        &["text/javascript", "application/javascript", "application/x-javascript"],
        &["text/xml", "application/xml"],
        &["image/x-icon", "image/vnd.microsoft.icon"],
    ];
    let synonyms = SYNONYMS.into_iter().find(|names| names.contains(&&*range));
    synonyms.map_or(range, |names| names.join(" "))
}

/// Returns the media types for an expression such as `image/` or `^text/css$`.
fn range_of(regex: &str) -> Option<String> {
    let regex = regex.strip_prefix("(?i)").unwrap_or(regex);
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let text = regex.strip_suffix('$').unwrap_or(regex);
    let text = text.strip_suffix(".*").or_else(|| text.strip_suffix(".+")).unwrap_or(text);
    let text = text.replace("\\/", "/").replace("\\.", ".").replace("\\+", "+").replace("\\-", "-");
    let is_token = |text: &str| {
        let mut bytes = text.bytes();
        !text.is_empty() && bytes.all(|b| b.is_ascii_alphanumeric() || b"-+.".contains(&b))
    };
    let (main, sub) = text.split_once('/').unwrap_or((&text, ""));
    let range = match sub {
        "" => format!("{main}/*"),
        sub => format!("{main}/{sub}"),
    };
    (is_token(main) && (sub.is_empty() || is_token(sub))).then(|| range.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::range_of;

    #[test]
    fn expressions_for_the_begin_of_a_media_type_are_ranges() {
        for (regex, expected) in [
            ("image/", Some("image/*")),
            ("(?i)^Font/", Some("font/*")),
            ("^image\\/.*$", Some("image/*")),
            ("text/css", Some("text/css")),
            ("^image/svg\\+xml$", Some("image/svg+xml")),
            ("image", Some("image/*")),
            ("image/(png|gif)", None),
            ("/css", None),
            ("", None),
            (".*", None),
        ] {
            assert_eq!(range_of(regex).as_deref(), expected, "{regex}");
        }
    }
}
