//! Keys of redirects and of fixed responses.

use weft::HeaderValue;
use weft_config::{Key, ValueKind, quoted};

/// The key of a redirect.
pub(crate) static STATUS_CODE: [Key<Option<u16>>; 1] = [Key {
    name: "status",
    flag: "",
    argument: "",
    help: "status of the response",
    kind: ValueKind::Count(200..=599, |status, number| *status = Some(number as u16)),
    show: |status| status.map_or_else(String::new, |status| status.to_string()),
}];

/// Status and media type of a fixed response.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseConfig {
    pub(crate) status: Option<u16>,
    pub(crate) content_type: Option<HeaderValue>,
}

/// The keys of a fixed response.
pub(crate) static RESPONSE: [Key<ResponseConfig>; 2] = [
    Key {
        name: "status",
        flag: "",
        argument: "",
        help: "status of the response",
        kind: ValueKind::Count(200..=599, |response, number| response.status = Some(number as u16)),
        show: |response| response.status.map_or_else(String::new, |status| status.to_string()),
    },
    Key {
        name: "content_type",
        flag: "",
        argument: "",
        help: "media type of the response (that of the name of a file; text/plain)",
        kind: ValueKind::Text(|response, text| {
            let invalid = || text.problem("expected a media type such as application/json");
            let is_type = |value: &HeaderValue| {
                value.to_str().is_ok_and(|value| value.split_once('/').is_some())
            };
            let value = HeaderValue::from_str(&text.value).ok().filter(is_type);
            response.content_type = Some(value.ok_or_else(invalid)?);
            Ok(())
        }),
        show: |response| {
            let value = response.content_type.as_ref().and_then(|value| value.to_str().ok());
            value.map_or_else(String::new, quoted)
        },
    },
];
