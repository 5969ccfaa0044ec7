//! The JSON schema of a route.

use serde_json::{Value, json};
use weft_config::find;
use weft_config::schema::{Properties, matching, or_variable, properties, table};

use super::route_config::operators;
use crate::apps::{FORMS, PathKeys};
use crate::options::option_keys;
use crate::route::{SPLIT, WHEN};

/// Returns the schema of a route: a text, or a table with the key of the form. A table without one
/// takes it from a snippet. `uses` is the schema of the names of snippets.
pub(super) fn route_schema(uses: &Value) -> Value {
    let signs: Vec<_> = operators().map(|operator| operator.sign).collect();
    let text = format!("^ *({}) *[^ ]", signs.join("|"));
    let mut forms = vec![or_variable(matching(&text))];
    let with_form = |mut form: Properties, required: &str| {
        form.insert("use".to_owned(), uses.clone());
        let mut form = table(form);
        form["required"] = json!([required]);
        form
    };
    for form in FORMS {
        let mut keys = (form.properties)();
        keys.extend(properties(option_keys()));
        keys.extend(properties(&SPLIT));
        keys.extend(properties(&WHEN));
        forms.push(with_form(keys, (form.name)()));
    }
    let mut of_snippet = with_form(all_properties(), "use");
    // `rewrite` is also a key of other forms, which may come from a snippet.
    let names = FORMS.iter().map(|form| (form.name)());
    let names = names.filter(|name| find(PathKeys::All.keys(), name).is_none());
    let names: Vec<_> = names.map(|name| json!({ "required": [name] })).collect();
    of_snippet["not"] = json!({ "anyOf": names });
    forms.push(of_snippet);
    json!({ "anyOf": forms })
}

/// Returns the schemas of the keys of all forms, and of the keys that every route may have.
pub(super) fn all_properties() -> Properties {
    let mut all = properties(option_keys());
    all.extend(properties(&SPLIT));
    all.extend(properties(&WHEN));
    FORMS.iter().for_each(|form| all.extend((form.properties)()));
    all
}
