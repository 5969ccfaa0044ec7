//! A purge of the response cache, as a client of the status endpoint or another machine sends it.

use serde::{Deserialize, Serialize};
use weft::cache::Purge;

/// The content of a purge: exactly one of the first four.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PurgeRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    pub(crate) soft: bool,
}

impl PurgeRequest {
    /// Reads a purge.
    ///
    /// # Errors
    /// If it is not a valid one.
    pub(crate) fn parse(json: &[u8]) -> Result<(PurgeRequest, Purge), String> {
        let request: PurgeRequest = serde_json::from_slice(json)
            .map_err(|error| format!("the purge is not valid: {error}"))?;
        let purge = request.purge()?;
        Ok((request, purge))
    }

    /// Returns the text that [`parse`](PurgeRequest::parse) reads.
    pub(crate) fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    fn purge(&self) -> Result<Purge, &'static str> {
        let mut purges = Vec::new();
        purges.extend(self.url.clone().map(Purge::Url));
        purges.extend(self.prefix.clone().map(Purge::Prefix));
        purges.extend(self.tag.clone().map(Purge::Tag));
        purges.extend(self.all.then_some(Purge::All));
        let is_absolute = |text: &str| text.contains("://");
        match (purges.pop(), purges.is_empty()) {
            (Some(Purge::Url(text) | Purge::Prefix(text)), true) if !is_absolute(&text) => {
                Err("a URL begins with its scheme, such as https://example.org/page")
            }
            (Some(purge), true) => Ok(purge),
            _ => Err("expected one of `url`, `prefix`, `tag` and `\"all\": true`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_is_the_same_on_another_machine() {
        for (text, expected) in [
            (r#"{"url":"https://a/b"}"#, Some(Purge::Url("https://a/b".to_owned()))),
            (
                r#"{"prefix":"https://a/","soft":true}"#,
                Some(Purge::Prefix("https://a/".to_owned())),
            ),
            (r#"{"tag":"a b"}"#, Some(Purge::Tag("a b".to_owned()))),
            (r#"{"all":true}"#, Some(Purge::All)),
            (r#"{"all":true,"tag":"a"}"#, None),
            (r#"{"url":"/b"}"#, None),
            (r#"{"unknown":1,"all":true}"#, None),
            ("{}", None),
            ("", None),
        ] {
            let parsed = PurgeRequest::parse(text.as_bytes());
            assert_eq!(parsed.as_ref().ok().map(|(_, purge)| purge), expected.as_ref(), "{text}");
            if let Ok((request, purge)) = parsed {
                let (again, same) = PurgeRequest::parse(request.to_json().as_bytes()).unwrap();
                assert_eq!((again.soft, same), (request.soft, purge), "{text}");
            }
        }
    }
}
