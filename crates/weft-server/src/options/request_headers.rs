//! Changes to the fields of requests that upstreams and scripts get.

use weft::header::HeaderName;
use weft_config::{ConfigResult, Key, ValueKind, quoted_list};

use super::fields::changes::{FieldChanges, FieldOperation, parse_request_field, show_fields};
use super::fields::middleware::RequestFieldChanges;
use super::fields::names::{check_changed_name, parse_name};
use super::layer::{Layer, OpenContext};
use super::{RouteOption, RouteOptions};
use crate::template::Template;

/// Changes to the fields of requests, which are inherited name by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RequestHeaderOptions {
    changes: FieldChanges,
}

impl RequestHeaderOptions {
    /// Names of the fields that upstreams never get from a client.
    pub(super) fn own_names(&self) -> impl Iterator<Item = &HeaderName> {
        let set = self.changes.set.iter().filter(|field| field.operation == FieldOperation::Set);
        set.map(|field| &field.name).chain(&self.changes.remove)
    }
}

impl RouteOption for RequestHeaderOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "request_headers",
            help: "request fields that upstreams and scripts get: `{ Name = \"value\" }` or `NAME: VALUE`; \
                   each replaces fields of that name, `\"+Name\"` adds a value to the list, `\"?Name\"` sets it \
                   if there is none; inherited name by name",
            kind: ValueKind::Fields(|options, texts| {
                let fields = texts.iter().map(parse_request_field);
                options.changes.set = fields.collect::<ConfigResult<_>>()?;
                Ok(())
            }),
            show: |options| show_fields(&options.changes.set),
            ..Key::FILE_ONLY
        },
        Key {
            name: "remove_request_headers",
            help: "names of request fields that upstreams and scripts do not get",
            kind: ValueKind::Texts(|options, texts| {
                let names =
                    texts.iter().map(|text| parse_name(text, &text.value, check_changed_name));
                options.changes.remove = names.collect::<ConfigResult<_>>()?;
                Ok(())
            }),
            show: |options| quoted_list(options.changes.remove.iter()),
            ..Key::FILE_ONLY
        },
    ];

    fn or(self, outer: &Self) -> Self {
        RequestHeaderOptions { changes: self.changes.or(&outer.changes) }
    }

    fn templates(&self) -> Vec<&Template> {
        self.changes.templates()
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let changes = RequestFieldChanges::new(&self.changes);
        let layer = |changes: RequestFieldChanges| Layer::of_worker(move || changes.for_worker());
        Ok(changes.map(layer).into_iter().collect())
    }
}
