//! Changes to the fields of responses.

use weft::header::HeaderName;
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted_list};

use super::fields::changes::{FieldChanges, parse_field, show_fields};
use super::fields::middleware::ResponseFieldChanges;
use super::fields::names::{check_response_name, parse_name};
use super::layer::{Layer, OpenContext};
use super::{RouteOption, RouteOptions};
use crate::template::Template;

/// Changes to the fields of responses, which are inherited name by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ResponseHeaderOptions {
    changes: FieldChanges,
}

impl ResponseHeaderOptions {
    /// Returns the names of the fields that are removed.
    pub(super) fn removed(&self) -> &[HeaderName] {
        &self.changes.remove
    }

    /// Drops the changes that set or add one of these fields.
    pub(crate) fn keep_unset(&mut self, names: &[&HeaderName]) {
        self.changes.set.retain(|field| !names.contains(&&field.name));
    }
}

impl RouteOption for ResponseHeaderOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "response_headers",
            help: "response fields: `{ Name = \"value\" }` or `NAME: VALUE`; each replaces fields of \
                   that name, `\"+Name\"` adds one, `\"?Name\"` sets it if there is none; by status \
                   and media type `{ Name = { \"404 5xx\" = \"value\", \"text/css image/*\" = \"value\" } }`; \
                   inherited name by name",
            kind: ValueKind::Fields(set_headers),
            show: |options| show_fields(&options.changes.set),
            ..Key::FILE_ONLY
        },
        Key {
            name: "remove_response_headers",
            help: "names of response fields to remove, before `response_headers` are set",
            kind: ValueKind::Texts(set_removed),
            show: |options| quoted_list(options.changes.remove.iter()),
            ..Key::FILE_ONLY
        },
    ];

    fn or(self, outer: &Self) -> Self {
        ResponseHeaderOptions { changes: self.changes.or(&outer.changes) }
    }

    fn templates(&self) -> Vec<&Template> {
        self.changes.templates()
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let changes = ResponseFieldChanges::new(&self.changes);
        let layer = |changes: ResponseFieldChanges| Layer::of_worker(move || changes.for_worker());
        Ok(changes.map(layer).into_iter().collect())
    }
}

fn set_headers(options: &mut ResponseHeaderOptions, texts: Vec<Located<String>>) -> ConfigResult {
    let fields = texts.iter().map(|text| parse_field(text, check_response_name));
    options.changes.set = fields.collect::<ConfigResult<_>>()?;
    Ok(())
}

fn set_removed(options: &mut ResponseHeaderOptions, texts: Vec<Located<String>>) -> ConfigResult {
    let names = texts.iter().map(|text| parse_name(text, &text.value, check_response_name));
    options.changes.remove = names.collect::<ConfigResult<_>>()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherits_each_field_that_is_not_changed() {
        let options = |headers: &[&str], removed: &[&str]| {
            let at = |text: &&str| Located::without_location((*text).to_owned());
            let mut options = ResponseHeaderOptions::default();
            set_headers(&mut options, headers.iter().map(at).collect()).unwrap();
            set_removed(&mut options, removed.iter().map(at).collect()).unwrap();
            options
        };
        let outer = options(&["A: 1", "B: 1"], &["C"]);
        assert_eq!(options(&["b: 2"], &["A"]).or(&outer), options(&["b: 2"], &["a", "c"]));
        assert_eq!(options(&["c: 2"], &[]).or(&outer), options(&["c: 2", "a: 1", "b: 1"], &[]));
    }
}
