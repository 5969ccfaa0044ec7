//! Changes to the fields of a message.

use weft::header::{self, HeaderName, HeaderValue};
use weft_config::{ConfigResult, Located, quoted_list};

use super::names::{NameCheck, check_set_name, parse_name};
use super::response_match::ResponseMatch;
use crate::base::engine_fields::is_host;
use crate::template::Template;

/// Changes to the fields of a message: some are removed, then some are set or added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::options) struct FieldChanges {
    pub(in crate::options) set: Vec<Field>,
    pub(in crate::options) remove: Vec<HeaderName>,
}

impl FieldChanges {
    /// Adds the changes of `outer` to fields that are not changed here.
    pub(in crate::options) fn or(self, outer: &FieldChanges) -> FieldChanges {
        let FieldChanges { mut set, mut remove } = self;
        let is_inherited = |name: &HeaderName| {
            !set.iter().any(|field| field.name == *name) && !remove.contains(name)
        };
        let (inherited_set, inherited_removed): (Vec<_>, Vec<_>) = (
            outer.set.iter().filter(|field| is_inherited(&field.name)).cloned().collect(),
            outer.remove.iter().filter(|name| is_inherited(name)).cloned().collect(),
        );
        set.extend(inherited_set);
        remove.extend(inherited_removed);
        FieldChanges { set, remove }
    }

    /// Returns the values that may depend on the request.
    pub(in crate::options) fn templates(&self) -> Vec<&Template> {
        self.set.iter().map(|field| &field.value).collect()
    }
}

/// A change to the fields of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::options) struct Field {
    pub(in crate::options) name: HeaderName,
    pub(in crate::options) operation: FieldOperation,
    /// Responses that are changed.
    pub(in crate::options) on: ResponseMatch,
    pub(in crate::options) value: Template,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::options) enum FieldOperation {
    /// Replaces fields of that name.
    Set,
    /// Keeps fields of that name.
    Add,
    IfAbsent,
}

impl FieldOperation {
    /// The character in front of the name.
    fn prefix(self) -> &'static str {
        match self {
            FieldOperation::Set => "",
            FieldOperation::Add => "+",
            FieldOperation::IfAbsent => "?",
        }
    }

    fn split(name: &str) -> (FieldOperation, &str) {
        let with_prefix = |operation: FieldOperation| {
            name.strip_prefix(operation.prefix()).map(|name| (operation, name))
        };
        with_prefix(FieldOperation::Add)
            .or_else(|| with_prefix(FieldOperation::IfAbsent))
            .unwrap_or((FieldOperation::Set, name))
    }
}

/// Formats fields as in a file.
pub(in crate::options) fn show_fields(fields: &[Field]) -> String {
    let line = |Field { name, operation, on, value }: &Field| {
        let on = if on.is_all() { String::new() } else { format!("{{{on}}}=") };
        format!("{on}{}{name}: {}", operation.prefix(), value.source())
    };
    quoted_list(fields.iter().map(line))
}

/// Parses `NAME: VALUE` or `{RESPONSES}=NAME: VALUE`.
pub(in crate::options) fn parse_field(
    text: &Located<String>,
    check: NameCheck,
) -> ConfigResult<Field> {
    let invalid = || text.problem(format!("expected NAME: VALUE, found {:?}", text.value));
    let (name, value) = text.value.split_once(':').ok_or_else(invalid)?;
    let (on, name) = match name.rsplit_once('=') {
        None => (ResponseMatch::default(), name),
        Some((on, name)) => {
            let on = on.trim().trim_start_matches('{').trim_end_matches('}');
            (ResponseMatch::parse(on).map_err(|message| text.problem(message))?, name)
        }
    };
    let (operation, name) = FieldOperation::split(name.trim());
    let name = parse_name(text, name, check)?;
    let value = value.trim();
    HeaderValue::from_str(value).map_err(|_| {
        text.problem(format!("the value of {name} has a byte that no field can have"))
    })?;
    let value = Template::parse_of_response(value).map_err(|message| text.problem(message))?;
    Ok(Field { name, operation, on, value })
}

/// Parses a field of a request.
pub(in crate::options) fn parse_request_field(text: &Located<String>) -> ConfigResult<Field> {
    let field = parse_field(text, check_set_name)?;
    let name = &field.name;
    let literal = field.value.as_literal().filter(|_| *name == header::HOST);
    if let Some(host) = literal.filter(|host| !is_host(host.as_bytes())) {
        return Err(
            text.problem(format!("expected a host such as app.internal:8080, found {host:?}"))
        );
    }
    Template::parse(field.value.source()).map_err(|message| text.problem(message))?;
    match (field.operation, field.on.is_all()) {
        (FieldOperation::Add, _) if *name == header::HOST => {
            Err(text.problem(format!("a request has one `{name}`, which is set, as `{name}`")))
        }
        (_, false) => Err(text.problem("a request has no status and no media type of a response")),
        _ => Ok(field),
    }
}
