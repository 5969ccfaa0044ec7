//! Values of a log that are parts of the request, beside its notes.

use std::borrow::Cow;

use weft::{LogValue, LogValues, Record};

use crate::template::{cookie, port, query_parameter};

/// The values of a request with notes.
pub(super) struct RequestValues<'a> {
    pub(super) record: &'a Record<'a>,
    pub(super) notes: &'a dyn LogValues,
}

/// Returns true if the value with this name is a part of the request.
pub(crate) fn is_of_request(name: &str) -> bool {
    name == "port" || parameter(name, "cookie.").is_some() || parameter(name, "query.").is_some()
}

fn parameter<'a>(name: &'a str, begin: &str) -> Option<&'a str> {
    name.strip_prefix(begin).filter(|parameter| !parameter.is_empty())
}

impl LogValues for RequestValues<'_> {
    fn value(&self, name: &str) -> Option<LogValue<'_>> {
        if !is_of_request(name) {
            return self.notes.value(name);
        }
        let head = self.record.head?;
        let value = match (parameter(name, "cookie."), parameter(name, "query.")) {
            (Some(name), _) => cookie(head, name),
            (None, Some(name)) => query_parameter(head.query()?, name),
            (None, None) => port(head, self.record.peer.tls().is_some()).into(),
        };
        let bytes = match value {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        (!bytes.is_empty()).then_some(LogValue::Text(bytes))
    }

    fn response_field(&self, name: &str) -> Option<&[u8]> {
        self.notes.response_field(name)
    }
}
