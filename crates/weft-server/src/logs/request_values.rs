//! Values of a log that are parts of the request, beside its notes.

use std::borrow::Cow;

use weft::hooks::Record;
use weft::log::{LogPrivacy, LogValue, LogValues};

use crate::base::log_format::RequestValue;
use crate::template::{cookie, port, query_parameter};

/// The values of a request with notes.
pub(super) struct RequestValues<'a> {
    pub(super) record: &'a Record<'a>,
    pub(super) notes: &'a dyn LogValues,
    /// Parts that are withheld.
    pub(super) privacy: Option<&'a LogPrivacy>,
}

impl RequestValues<'_> {
    fn redacts(&self, name: &str) -> bool {
        self.privacy.is_some_and(|privacy| privacy.redacts(name.as_bytes()))
    }
}

impl LogValues for RequestValues<'_> {
    fn value(&self, name: &str) -> Option<LogValue<'_>> {
        let Some(part) = RequestValue::parse(name) else { return self.notes.value(name) };
        let head = self.record.head?;
        let value = match part {
            RequestValue::Cookie(name) => cookie(head, name),
            RequestValue::Query(name) if self.redacts(name) => "***".into(),
            RequestValue::Query(name) => query_parameter(head.query()?, name),
            RequestValue::Port => port(head, self.record.peer.tls().is_some()).into(),
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
