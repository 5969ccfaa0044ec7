//! `weft schema`: a JSON schema of the configuration file, with which editors complete and check it.
//! It is made from the lists of keys.

use serde_json::{Value, json};
use weft_config::Key;
use weft_config::schema::{
    Properties, matching, or_variable, properties, table, text, texts, with_description,
};

use crate::config::{
    CGI, FILES, PROXY, RESPONSE, REWRITE, RewriteConfig, SPLIT, STATUS_CODE, sections,
};
use crate::config::{fastcgi_keys, php_keys, scgi_keys};
use crate::options::option_keys;
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
    host.insert("use".to_owned(), reference("use"));
    let mut host = table(host);
    host["patternProperties"] = routes.clone();
    let mut snippet = table(all_route_properties());
    snippet["patternProperties"] = routes;
    top.insert("hosts".to_owned(), json!({ "type": "object", "additionalProperties": host }));
    let snippets = json!({ "type": "object", "additionalProperties": snippet });
    top.insert("snippets".to_owned(), snippets);
    let streams = json!({ "type": "object", "additionalProperties": table(properties(&STREAM)) });
    top.insert("streams".to_owned(), streams);
    let mut schema = table(top);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("Configuration of the web server weft");
    schema["definitions"] = json!({
        "route": route(),
        "use": with_description(texts(), "snippets whose keys this table takes over"),
    });
    format!("{schema:#}\n")
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{name}") })
}

/// The forms of a route: a text, or a table with the key of the form. A table without one takes it
/// from a snippet.
fn route() -> Value {
    let mut forms = vec![or_variable(matching("^ *(->|<<|=>|>>) *[^ ]"))];
    for (form, own) in forms_of_routes() {
        let mut form_table = own;
        form_table.extend(properties(option_keys()));
        form_table.extend(properties(&SPLIT));
        form_table.insert("use".to_owned(), reference("use"));
        let mut form_table = table(form_table);
        form_table["required"] = json!([form]);
        forms.push(form_table);
    }
    let mut of_snippet = all_route_properties();
    of_snippet.insert("use".to_owned(), reference("use"));
    let mut of_snippet = table(of_snippet);
    of_snippet["required"] = json!(["use"]);
    // `rewrite` is also a key of other forms, which may come from a snippet.
    let form_names = forms_of_routes().into_iter().filter(|(form, _)| *form != "rewrite");
    let form_names: Vec<_> = form_names.map(|(form, _)| json!({ "required": [form] })).collect();
    of_snippet["not"] = json!({ "anyOf": form_names });
    forms.push(of_snippet);
    json!({ "anyOf": forms })
}

/// The keys of each form of a route, besides the options of every route.
fn forms_of_routes() -> [(&'static str, Properties); 10] {
    let form = |name: &'static str, value: Value, help: &str, mut own: Properties| {
        own.insert(name.to_owned(), with_description(value, help));
        (name, own)
    };
    let mut of_files = properties(php_keys());
    of_files.extend(properties(&FILES));
    let help = "addresses of upstreams that run scripts by FastCGI, such as PHP-FPM";
    of_files.insert("php".to_owned(), with_description(texts(), help));
    [
        form("files", text(), "directory to serve", with_rewrite(of_files, &REWRITE)),
        form(
            "fastcgi",
            texts(),
            "addresses of upstreams",
            with_rewrite(properties(fastcgi_keys()), &REWRITE[..1]),
        ),
        form(
            "scgi",
            texts(),
            "addresses of upstreams",
            with_rewrite(properties(scgi_keys()), &REWRITE[..1]),
        ),
        form(
            "uwsgi",
            texts(),
            "addresses of upstreams",
            with_rewrite(properties(scgi_keys()), &REWRITE[..1]),
        ),
        form(
            "proxy",
            texts(),
            "URLs of upstreams",
            with_rewrite(properties(&PROXY), &REWRITE[..1]),
        ),
        form("rewrite", text(), "path whose route handles the requests", Properties::new()),
        form("redirect", text(), "URL to redirect to", properties(&STATUS_CODE)),
        form("respond", text(), "text of the response", properties(&RESPONSE)),
        form("respond_file", text(), "file to respond with", properties(&RESPONSE)),
        form(
            "cgi",
            text(),
            "script, or directory of scripts",
            with_rewrite(properties(&CGI), &REWRITE[..1]),
        ),
    ]
}

fn with_rewrite(mut own: Properties, keys: &'static [Key<RewriteConfig>]) -> Properties {
    own.extend(properties(keys));
    own
}

fn all_route_properties() -> Properties {
    let mut all = properties(option_keys());
    all.extend(properties(&SPLIT));
    forms_of_routes().into_iter().for_each(|(_, own)| all.extend(own));
    all
}
