//! `weft schema`: a JSON schema of the configuration file, with which editors complete and check
//! it. It is made from the lists of keys.

use serde_json::{Value, json};
use weft_config::schema::{Properties, properties, table, texts, with_description};

use super::route_schema::{all_properties, route_schema};
use super::sections;
use crate::options::option_keys;
use crate::sections::host::HOST;
use crate::sections::maps::MAP;
use crate::sections::streams::STREAM;

/// Prefixes in a host section: with methods, exact, a pattern or the name of a route.
const ROUTE_NAMES: &str = "^([A-Z][A-Z, ]* )?(/|= |~ |@)|\\{env\\.";

pub(crate) fn schema() -> String {
    let mut top = Properties::new();
    for section in sections() {
        match section.name {
            "" => top.extend(properties(&section.keys)),
            name => drop(top.insert(name.to_owned(), table(properties(&section.keys)))),
        }
    }
    let routes = json!({ ROUTE_NAMES: reference("route") });
    let mut host = properties(option_keys());
    host.extend(properties(&HOST));
    host.insert("use".to_owned(), reference("use"));
    let mut host = table(host);
    host["patternProperties"] = routes.clone();
    let mut snippet = table(all_properties());
    snippet["patternProperties"] = routes;
    top.insert("hosts".to_owned(), json!({ "type": "object", "additionalProperties": host }));
    let snippets = json!({ "type": "object", "additionalProperties": snippet });
    top.insert("snippets".to_owned(), snippets);
    let maps = json!({ "type": "object", "additionalProperties": table(properties(&MAP)) });
    top.insert("maps".to_owned(), maps);
    let streams = json!({ "type": "object", "additionalProperties": table(properties(&STREAM)) });
    top.insert("streams".to_owned(), streams);
    let mut schema = table(top);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("Configuration of the web server weft");
    schema["definitions"] = json!({
        "route": route_schema(&reference("use")),
        "use": with_description(texts(), "snippets whose keys this table takes over"),
    });
    format!("{schema:#}\n")
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{name}") })
}
