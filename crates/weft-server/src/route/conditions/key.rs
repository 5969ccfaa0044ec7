//! The key `when` of a route: a table of conditions, or a list of tables.

use serde_json::json;
use weft::header::{self, HeaderName};
use weft_config::schema::{any_of, boolean, list, texts};
use weft_config::{
    ConfigResult, CustomType, Given, Key, Located, Name, Value, ValueKind, quoted, quoted_list,
    schema, shown_list, suggest,
};

use super::value_tests::{ValueTests, split_operator};
use super::{Choice, Condition, ConditionSet, Conditions, MAX_CONDITIONS, Subject};
use crate::base::network_set::networks;
use crate::route::key::{PathKey, RouteKey};
use crate::route::methods::Methods;
use crate::template::Template;

/// Value of the key `when`.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhenConfig {
    pub(crate) conditions: Option<Conditions>,
    /// The key is set, maybe to an invalid value.
    is_set: bool,
}

impl WhenConfig {
    pub(crate) fn new(conditions: Option<Conditions>) -> WhenConfig {
        WhenConfig { is_set: conditions.is_some(), conditions }
    }

    /// Checks that a route has both conditions and a label, or neither.
    ///
    /// # Errors
    /// If one of them is missing, or if the route has a name.
    pub(crate) fn check_label(&self, key: &RouteKey) -> Result<(), String> {
        match (&key.path, &key.label, self.is_set) {
            (PathKey::Name(_), _, true) => {
                Err(format!("`when` is not possible for {key}, which only other routes lead to"))
            }
            (_, None, true) => Err(format!(
                "a route with `when` has a label, such as \"{key} @canary\"; \"{key}\" is the \
                 route without conditions"
            )),
            (_, Some(label), false) => Err(format!(
                "the label @{label} is for routes with conditions, and `when` is missing"
            )),
            _ => Ok(()),
        }
    }
}

pub(crate) static CONDITIONS: CustomType =
    CustomType { is_list: false, shape: "table or list of tables", schema: conditions_schema };

pub(crate) static WHEN: [Key<WhenConfig>; 1] = [Key {
    name: "when",
    help: "conditions under which requests get the route, by `method`, `client`, `header`, `cookie`, \
           `query` or `value`, such as `{ cookie = { beta = \"1\" } }`; of a list, one table must match",
    kind: ValueKind::Custom(&CONDITIONS, |config, given| {
        config.is_set = true;
        if let Given::Values([value]) = given {
            config.conditions = Some(read_conditions(value)?);
        }
        Ok(())
    }),
    show: |config| config.conditions.as_ref().map_or_else(String::new, show_conditions),
    ..Key::FILE_ONLY
}];

/// Keys of a table of conditions.
const KEYS: [&str; 6] = ["method", "client", "header", "cookie", "query", "value"];

fn conditions_schema() -> serde_json::Value {
    let value = any_of([boolean(), texts()]);
    let values = json!({ "type": "object", "additionalProperties": value });
    let mut properties = schema::Properties::new();
    for key in KEYS {
        let of_key = if matches!(key, "method" | "client") { texts() } else { values.clone() };
        properties.insert(key.to_owned(), of_key);
    }
    any_of([schema::table(properties.clone()), list(schema::table(properties))])
}

/// Reads a table of conditions, or a list of tables.
///
/// # Errors
/// With an invalid condition, and with none or too many.
pub(crate) fn read_conditions(value: &Value<'_>) -> ConfigResult<Conditions> {
    let sets: Vec<_> = match value.items() {
        Ok(tables) => tables.map(|table| read_set(&table)).collect::<ConfigResult<_>>()?,
        Err(_) => vec![read_set(value)?],
    };
    match sets.iter().map(ConditionSet::count).sum() {
        0 => Err(value.problem("expected at least one condition, such as { header = { … } }")),
        1..=MAX_CONDITIONS => Ok(Conditions(sets)),
        count => Err(value
            .problem(format!("a route has at most {MAX_CONDITIONS} conditions, found {count}"))),
    }
}

fn read_set(table: &Value<'_>) -> ConfigResult<ConditionSet> {
    let entries = table.entries().map_err(|_| {
        table.expected("a table of conditions such as { header = { X-Canary = \"1\" } }")
    })?;
    let mut set = ConditionSet::default();
    for (name, value) in entries {
        match &*name.value {
            "method" => set.methods = read_methods(&value)?,
            "client" => set.clients = read_clients(&value)?,
            kind @ ("header" | "cookie" | "query" | "value") => {
                for (name, value) in value.entries()? {
                    let subject = Subject::parse(kind, &name.value);
                    let subject = subject.map_err(|message| name.problem(message))?;
                    set.tests.push(Condition { subject, tests: read_tests(&value)? });
                }
            }
            _ => return Err(unknown_key(&name)),
        }
    }
    match set.count() {
        0 => Err(table.problem("an empty table would match every request")),
        _ => Ok(set),
    }
}

fn unknown_key(name: &Name) -> weft_config::Problem {
    let hint = match suggest(&name.value, KEYS.into_iter()) {
        Some(suggestion) => format!("did you mean `{suggestion}`?"),
        None => format!("known here: {}", KEYS.map(|key| format!("`{key}`")).join(", ")),
    };
    name.problem(format!("unknown condition `{}`; {hint}", name.value))
}

impl Subject {
    fn parse(kind: &str, name: &str) -> Result<Subject, String> {
        match kind {
            "header" => match name.parse::<HeaderName>() {
                Ok(header::HOST) => {
                    Err("the host is the name of a section, or the value {host}".to_owned())
                }
                Ok(header::COOKIE) => Err("cookies have the condition `cookie`".to_owned()),
                Ok(name) => Ok(Subject::Header(name)),
                Err(_) => Err(format!("expected the name of a field, found {name:?}")),
            },
            "cookie" if !name.is_empty() => Ok(Subject::Cookie(name.into())),
            "query" if !name.is_empty() => Ok(Subject::Query(name.into())),
            "value" => {
                let template = Template::parse(name)?.known_to_router()?;
                match template.as_literal() {
                    Some(_) => Err(format!(
                        "expected a text with placeholders such as \"{{scheme}}\", found {name:?}"
                    )),
                    None => Ok(Subject::Text(template)),
                }
            }
            _ => Err("expected a name".to_owned()),
        }
    }

    /// Returns the key of the table, and the name in it.
    fn names(&self) -> (&'static str, &str) {
        match self {
            Subject::Header(name) => ("header", name.as_str()),
            Subject::Cookie(name) => ("cookie", name),
            Subject::Query(name) => ("query", name),
            Subject::Text(template) => ("value", template.source()),
        }
    }
}

fn read_tests(value: &Value<'_>) -> ConfigResult<ValueTests> {
    match value.bool() {
        Ok(true) => return Ok(ValueTests::Present),
        Ok(false) => return Ok(ValueTests::Absent),
        Err(_) => {}
    }
    let expected = |_| value.expected("a value, a list of values, true or false");
    let texts = value.texts().map_err(expected)?;
    let tests = ValueTests::parse(texts.iter().map(|text| &*text.value));
    tests.map_err(|message| value.problem(message))
}

fn read_methods(value: &Value<'_>) -> ConfigResult<Choice<Methods>> {
    let methods = |texts: Vec<Located<String>>| match &*texts {
        [] => Ok(None),
        [first, ..] => {
            let names: Vec<&str> = texts.iter().map(|text| &*text.value).collect();
            Methods::parse(&names.join(",")).map(Some).map_err(|message| first.problem(message))
        }
    };
    read_choice(value, methods)
}

fn read_clients(value: &Value<'_>) -> ConfigResult<Choice<Vec<weft::net::IpNetwork>>> {
    read_choice(value, |texts| Ok(Some(networks(texts)?).filter(|list| !list.is_empty())))
}

/// Reads a list, whose items with `!=` are refused.
fn read_choice<T>(
    value: &Value<'_>,
    read: impl Fn(Vec<Located<String>>) -> ConfigResult<Option<T>>,
) -> ConfigResult<Choice<T>> {
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for text in value.texts()? {
        match split_operator(&text.value) {
            Some(("!=", item)) => {
                let item = item.to_owned();
                refused.push(text.map(|_| item));
            }
            Some((sign, _)) => {
                return Err(text.problem(format!("`{sign}` is not permitted here, only `!=`")));
            }
            None => accepted.push(text),
        }
    }
    if accepted.is_empty() && refused.is_empty() {
        return Err(value.problem("expected at least one value"));
    }
    Ok(Choice { accepted: read(accepted)?, refused: read(refused)? })
}

/// Returns the conditions as in a file.
pub(crate) fn show_conditions(conditions: &Conditions) -> String {
    match &*conditions.0 {
        [set] => show_set(set),
        sets => shown_list(sets.iter().map(show_set)),
    }
}

fn show_set(set: &ConditionSet) -> String {
    let mut keys = Vec::new();
    let methods = |methods: &Methods| methods.written().map(|it| it.to_string()).collect();
    keys.extend(show_choice("method", &set.methods, methods));
    let networks =
        |list: &Vec<weft::net::IpNetwork>| list.iter().map(ToString::to_string).collect();
    keys.extend(show_choice("client", &set.clients, networks));
    for key in &KEYS[2..] {
        let of_key = set.tests.iter().filter(|condition| condition.subject.names().0 == *key);
        let pairs = of_key.map(|condition| {
            format!("{} = {}", quoted(condition.subject.names().1), show_tests(&condition.tests))
        });
        let pairs: Vec<_> = pairs.collect();
        if !pairs.is_empty() {
            keys.push(format!("{key} = {{ {} }}", pairs.join(", ")));
        }
    }
    format!("{{ {} }}", keys.join(", "))
}

fn show_choice<T>(
    name: &str,
    choice: &Choice<T>,
    items: impl Fn(&T) -> Vec<String>,
) -> Option<String> {
    let accepted = choice.accepted.iter().flat_map(&items);
    let refused = choice.refused.iter().flat_map(&items).map(|item| format!("!= {item}"));
    let items: Vec<_> = accepted.chain(refused).collect();
    (!items.is_empty()).then(|| format!("{name} = {}", quoted_list(items.iter())))
}

fn show_tests(tests: &ValueTests) -> String {
    match tests {
        ValueTests::Present => "true".to_owned(),
        ValueTests::Absent => "false".to_owned(),
        ValueTests::Values { .. } => match &*tests.texts().collect::<Vec<_>>() {
            [text] => quoted(text),
            texts => quoted_list(texts.iter()),
        },
    }
}
