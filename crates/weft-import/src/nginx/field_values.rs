//! Values of a response field, which may depend on the media type of the response.

use std::collections::BTreeMap;

use super::maps::ValuesByMediaType;
use super::tree::Directive;
use super::variables::{Variables, split_name};
use crate::document::{Table, Value};

/// Values of a field as templates; empty ones add no field.
#[derive(Clone)]
pub(super) struct FieldValues {
    default: String,
    /// Media types that are separated by spaces, or such as `image/*`, with their values. Later
    /// ones take precedence.
    by_type: Vec<(String, String)>,
}

impl FieldValues {
    /// Converts a text, in which a variable may be a map over the media type.
    ///
    /// # Errors
    /// The name of a variable without a placeholder.
    pub(super) fn of(
        text: &str,
        variables: &Variables<'_>,
        maps: &BTreeMap<&str, &Directive>,
    ) -> Result<FieldValues, String> {
        let template = |text: &str| variables.response_template(text);
        let mut names = text.match_indices('$').map(|(at, _)| split_name(&text[at + 1..]).0);
        let by_media_type = names.find_map(|name| {
            Some((name, ValuesByMediaType::of(maps.get(name)?, variables.target)?))
        });
        let Some((name, values)) = by_media_type else {
            return Ok(FieldValues { default: template(text)?, by_type: Vec::new() });
        };
        let filled = |value: &str| {
            template(
                &text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value),
            )
        };
        let by_type =
            values.entries.iter().map(|(range, value)| Ok((range.clone(), filled(value)?)));
        Ok(FieldValues {
            default: filled(values.default)?,
            by_type: by_type.collect::<Result<_, String>>()?,
        })
    }

    /// Returns the value if it is the same for all media types.
    pub(super) fn single(&self) -> Option<&str> {
        self.by_type.is_empty().then_some(&self.default)
    }

    /// Returns true if a value depends on the request.
    pub(super) fn has_placeholders(&self) -> bool {
        let mut values = self.by_type.iter().map(|(_, value)| value).chain([&self.default]);
        values.any(|value| value.contains('{'))
    }

    /// Changes each value; `None` if one of them has no equivalent.
    pub(super) fn try_map(self, change: impl Fn(&str) -> Option<String>) -> Option<FieldValues> {
        let by_type = self.by_type.into_iter().map(|(range, value)| Some((range, change(&value)?)));
        Some(FieldValues {
            default: change(&self.default)?,
            by_type: by_type.collect::<Option<_>>()?,
        })
    }

    /// Joins the values of several directives for each media type.
    pub(super) fn join(all: &[FieldValues], join: impl Fn(&[&str]) -> String) -> FieldValues {
        let mut ranges: Vec<&String> =
            all.iter().flat_map(|values| &values.by_type).map(|(range, _)| range).collect();
        // Types take precedence over ranges, and the order of each is kept.
        ranges.sort_by_key(|range| !range.ends_with("/*"));
        ranges.dedup();
        let joined = |range: &str| {
            join(&all.iter().map(|values| values.value_for(range)).collect::<Vec<_>>())
        };
        let by_type = ranges.into_iter().map(|range| (range.clone(), joined(range))).collect();
        FieldValues { default: joined(""), by_type }
    }

    /// Returns the value of a field in responses with one of these statuses, or `*` for all.
    pub(super) fn for_statuses(&self, statuses: &str) -> Option<Value> {
        if let Some(value) = self.single().filter(|_| statuses == "*") {
            return Some(value.into());
        }
        let mut table = Table::default();
        if !self.default.is_empty() {
            table.set(statuses, self.default.as_str());
        }
        for (range, value) in &self.by_type {
            // An empty value removes a former one.
            if !value.is_empty() || !table.is_empty() {
                let on = format!("{statuses} {range}");
                table.set(on.trim_start_matches("* "), value.as_str());
            }
        }
        (!table.is_empty()).then(|| table.into())
    }

    fn value_for(&self, range: &str) -> &str {
        let all = range.split_once('/').map(|(main, _)| format!("{main}/*"));
        let find = |it: &str| self.by_type.iter().rev().find(|(known, _)| known == it);
        let found = find(range).or_else(|| find(&all?));
        found.map_or(&self.default, |(_, value)| value)
    }
}
