//! Parts of a JSON schema, with which editors complete and check a file. They are made from the
//! lists of keys.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use crate::key::{SectionKey, ValueType};

/// Schemas of the keys of a table.
pub type Properties = Map<String, Value>;

/// Returns the schemas of the keys of a section.
pub fn properties<S, K: SectionKey<S>>(keys: impl IntoIterator<Item = K>) -> Properties {
    let mut properties = Properties::new();
    // Collecting them would compile a sort for each type of iterator.
    for key in keys {
        let spec = key.spec();
        let value = with_description(value_schema(spec.value_type), spec.help);
        properties.insert(spec.name.to_owned(), value);
    }
    properties
}

/// Returns the schema of a table with these keys and no others.
pub fn table(properties: Properties) -> Value {
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// Adds a description to a schema.
pub fn with_description(mut schema: Value, help: &str) -> Value {
    schema["description"] = json!(help);
    schema
}

/// Returns the schema of a text.
pub fn text() -> Value {
    json!({ "type": "string" })
}

/// Returns the schema of a text, or of a list of texts.
pub fn texts() -> Value {
    any_of([text(), list(text())])
}

/// Returns the schema of a list of values.
pub fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// Returns the schema of a value that has one of `schemas`.
pub fn any_of<const N: usize>(schemas: [Value; N]) -> Value {
    json!({ "anyOf": Vec::from(schemas) })
}

/// Returns the schema of a value, or of a text with an environment variable.
pub fn or_variable(schema: Value) -> Value {
    any_of([schema, json!({ "type": "string", "pattern": "\\{env\\." })])
}

/// Returns the schema of a text that matches a regular expression.
pub fn matching(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": pattern })
}

/// Returns the schema of a boolean.
pub fn boolean() -> Value {
    json!({ "type": "boolean" })
}

fn integer(range: &RangeInclusive<u64>) -> Value {
    json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
}

fn size(range: &RangeInclusive<u64>) -> Value {
    any_of([integer(range), or_variable(matching("^[0-9]+ ?([KMG]iB|[kKMG]?B)?$"))])
}

/// Returns the schema of a table of texts by any names.
fn pairs() -> Value {
    json!({ "type": "object", "additionalProperties": text() })
}

fn fields() -> Value {
    let value = any_of([text(), pairs()]);
    any_of([texts(), json!({ "type": "object", "additionalProperties": value })])
}

fn value_schema(value_type: ValueType<'_>) -> Value {
    match value_type {
        ValueType::Bool => or_variable(boolean()),
        ValueType::Count(range) => or_variable(integer(range)),
        ValueType::Size(range) => size(range),
        ValueType::Time => or_variable(matching("^(never|[0-9]+ ?(ms|s|m|h|d))$")),
        ValueType::Choice(known) => or_variable(json!({ "enum": known })),
        ValueType::BoolOrText => any_of([boolean(), text()]),
        ValueType::Text | ValueType::Path | ValueType::WordOrPath(_) => text(),
        ValueType::Texts => texts(),
        ValueType::Pairs => pairs(),
        ValueType::BoolOrPairs => any_of([or_variable(boolean()), pairs()]),
        ValueType::Rules => any_of([texts(), pairs()]),
        ValueType::Fields => fields(),
        ValueType::Custom(custom) => (custom.schema)(),
    }
}
