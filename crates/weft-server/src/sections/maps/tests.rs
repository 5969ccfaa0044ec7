//! Lookups in maps.

use std::path::Path;

use weft::testing;
use weft_config::{Document, Sources};

use super::*;
use crate::template::{RequestMaps, Template};

fn plan(text: &str) -> (MapsPlan, Vec<String>) {
    let sources = Sources::of_text("f", text.to_owned(), Path::new(""));
    let document = Document::parse(&sources);
    let mut problems = Vec::new();
    let mut settings = Vec::new();
    for (_, tables) in document.sections() {
        let maps = tables[0].entries().unwrap();
        settings = read_maps(maps, &mut problems);
    }
    let plan = MapsPlan::new(settings, &mut problems);
    let problems = document.with_syntax_problems(problems);
    (plan, problems.into_iter().map(|problem| problem.message).collect())
}

fn maps(text: &str) -> Arc<Maps> {
    let (plan, problems) = plan(text);
    assert_eq!(problems, [""; 0], "{text}");
    plan.maps.unwrap()
}

/// Returns a text with placeholders for a request.
fn expand(maps: &Arc<Maps>, text: &str, head: &str, client: &str) -> String {
    let head = format!("{head}\r\n\r\n");
    let mut request = testing::request(head);
    if let Ok(client) = client.parse() {
        request.set_peer(client);
    }
    request.extensions_mut().insert(RequestMaps::new(maps.clone()));
    Template::parse(text).unwrap().expand(&request).unwrap()
}

#[test]
fn finds_values() {
    let maps = maps(
        r#"
[maps.backend]
input = "{host}"
default = "other"
[maps.backend.values]
"a.example" = "up1"
"~ ^b\\." = "first pattern"
"~ ^(?<name>[a-z]+)\\.b\\.(.*)$" = "{re.name} of {re.2} by {method}"
"~ c" = "later"
"c.example" = "exact before patterns"
"= ~x" = "a sign"
"" = "no host"

[maps.network]
client = { "10.0.0.0/8" = "office", "10.1.0.0/16" = "lab", "10.1.2.3" = "printer", "2001:db8::/32" = "v6", "0.0.0.0/0" = "v4" }
default = "{scheme}"

[maps.chain]
input = "{map.backend}-{query.a}"
values = { "up1-1" = "one {map.network}" }
"#,
    );
    for (text, host, client, expected) in [
        ("{map.backend}", "a.example", "", "up1"),
        ("{map.backend}", "A.example", "", "up1"),
        ("{map.backend}", "b.example", "", "first pattern"),
        ("{map.backend}", "x.b.example", "", "x of example by GET"),
        ("{map.backend}", "c.example", "", "exact before patterns"),
        ("{map.backend}", "cc", "", "later"),
        ("{map.backend}", "z", "", "other"),
        ("<{map.backend}{map.backend}>", "a.example", "", "<up1up1>"),
        ("{map.chain}", "a.example", "10.2.0.1:1", "one office"),
        ("{map.chain}", "z", "10.2.0.1:1", ""),
        ("{map.network}", "z", "10.2.0.1:1", "office"),
        ("{map.network}", "z", "10.1.255.255:1", "lab"),
        ("{map.network}", "z", "10.1.2.3:1", "printer"),
        ("{map.network}", "z", "[::ffff:10.1.2.3]:1", "printer"),
        ("{map.network}", "z", "11.0.0.1:1", "v4"),
        ("{map.network}", "z", "[2001:db8::1]:1", "v6"),
        ("{map.network}", "z", "[2001:db9::1]:1", "http"),
    ] {
        let head = format!("GET /?a=1 HTTP/1.1\r\nHost: {host}");
        assert_eq!(expand(&maps, text, &head, client), expected, "{text} {host} {client}");
    }
}

#[test]
fn shares_of_the_inputs_have_values() {
    let maps = maps(
        r#"
[maps.group]
split = { canary = "10%", beta = "20%" }
input = "{query.k}"
default = "stable"
"#,
    );
    let group = |key: usize| {
        expand(&maps, "{map.group}", &format!("GET /?k={key} HTTP/1.1\r\nHost: a"), "")
    };
    let groups: Vec<_> = (0..2_000).map(group).collect();
    for (name, expected) in [("canary", 200), ("beta", 400), ("stable", 1_400)] {
        let count = groups.iter().filter(|group| *group == name).count();
        // More than four standard deviations.
        assert!(count.abs_diff(expected) < 100, "{name}: {count}");
    }
    assert_eq!(groups, (0..2_000).map(group).collect::<Vec<_>>());
    let without_key = expand(&maps, "{map.group}", "GET / HTTP/1.1\r\nHost: a", "");
    assert_eq!(without_key, "stable");
}

#[test]
fn reports_invalid_maps() {
    for (text, expected) in [
        ("[maps.a]\n", "the map `a` needs one of `values`, `client` and `split`"),
        ("[maps.a]\nvalues = {}\n", "the map `a` needs `input`"),
        ("[maps.a]\ninput = \"x\"\nvalues = {}\n", "expected a text with placeholders"),
        ("[maps.a]\ninput = \"{user}\"\nvalues = {}\n", "not known before the request has a route"),
        ("[maps.a]\ninput = \"{re.1}\"\nvalues = {}\n", "not known before the request has a route"),
        ("[maps.a]\ninput = \"{host}\"\nclient = {}\n", "`input` has no effect beside `client`"),
        ("[maps.a]\ninput = \"{host}\"\nvalues = { a = \"{re.1}\" }\n", "not known before"),
        (
            "[maps.a]\ninput = \"{host}\"\nvalues = { \"~ a\" = \"{re.1}\" }\n",
            "has no group {re.1}",
        ),
        ("[maps.a]\ninput = \"{host}\"\nvalues = { \"~ (a)\" = \"{user}\" }\n", "not known before"),
        ("[maps.a]\ninput = \"{host}\"\nvalues = { \"~ (\" = \"\" }\n", "has an invalid pattern"),
        ("[maps.a]\ninput = \"{host}\"\nvalues = { \"~^a\" = \"\" }\n", "\"~ ^a\""),
        ("[maps.a]\ninput = \"{host}\"\nvalues = { a = \"1\", \"= a\" = \"2\" }\n", "given twice"),
        ("[maps.a]\nclient = { x = \"1\" }\n", "expected an address"),
        ("[maps.a]\nclient = { \"10.0.0.1/8\" = \"1\", \"10.0.0.0/8\" = \"2\" }\n", "given twice"),
        ("[maps.a]\nsplit = { a = \"5\" }\n", "expected a percentage"),
        ("[maps.a]\nsplit = { a = \"60%\", b = \"50%\" }\n", "more than 100%"),
        ("[maps.a]\nsplit = { a = \"1%\" }\nclient = {}\n", "needs one of"),
        ("[maps.\"a b\"]\nclient = {}\n", "expected a name of letters"),
        ("[maps.a]\nclients = {}\n", "did you mean `client`?"),
        ("[maps.a]\ninput = \"{map.b}\"\nvalues = {}\n", "unknown map {map.b}"),
        ("[maps.a]\ninput = \"{map.a}\"\nvalues = {}\n", "in a circle"),
        (
            "[maps.a]\ninput = \"{host}\"\nvalues = {}\ndefault = \"{map.b}\"\n\
             [maps.b]\ninput = \"{map.a}\"\nvalues = {}\n",
            "in a circle",
        ),
    ] {
        let problems = plan(text).1;
        assert!(problems.iter().any(|it| it.contains(expected)), "{text}: {problems:?}");
    }
}

#[test]
fn the_length_of_chains_is_bounded() {
    let chain = |length: usize| {
        let map = |number: usize| {
            let input = match number {
                0 => "{host}".to_owned(),
                number => format!("{{map.m{}}}", number - 1),
            };
            format!("[maps.m{number}]\ninput = \"{input}\"\nvalues = {{}}\n")
        };
        plan(&(0..length).map(map).collect::<String>()).1
    };
    assert_eq!(chain(4), [""; 0]);
    assert_eq!(
        chain(5),
        ["the map `m4` uses other maps in a circle, or in a chain of more than 4"]
    );
}

#[test]
fn the_size_of_maps_is_bounded() {
    let entries = |count: usize, key: fn(usize) -> String| {
        let entries: String = (0..count).map(|n| format!("\"{}\" = \"v{n}\"\n", key(n))).collect();
        format!("[maps.a]\ninput = \"{{query.k}}\"\n[maps.a.values]\n{entries}")
    };
    let exact = |n: usize| format!("k{n}");
    let all = maps(&entries(MAX_ENTRIES, exact));
    let head = "GET /?k=k99999 HTTP/1.1\r\nHost: a";
    assert_eq!(expand(&all, "{map.a}", head, ""), "v99999");
    let problems = plan(&entries(MAX_ENTRIES + 1, exact)).1;
    assert!(problems[0].contains("at most 100000 entries"), "{problems:?}");
    let pattern = |n: usize| format!("~ ^k{n}$");
    let all = maps(&entries(1_000, pattern));
    assert_eq!(expand(&all, "{map.a}", "GET /?k=k999 HTTP/1.1\r\nHost: a", ""), "v999");
    let problems = plan(&entries(1_001, pattern)).1;
    assert!(problems[0].contains("the map `a` has 1001 patterns; 1000 are"), "{problems:?}");
    let value = |length| {
        plan(&format!("[maps.a]\nclient = {{ \"10.0.0.1\" = \"{}\" }}\n", "x".repeat(length))).1
    };
    assert_eq!(value(MAX_VALUE_BYTES), [""; 0]);
    assert!(value(MAX_VALUE_BYTES + 1)[0].contains("at most 4096 bytes"));
    let many = |count: usize| {
        plan(&(0..count).map(|n| format!("[maps.m{n}]\nclient = {{}}\n")).collect::<String>()).1
    };
    assert_eq!(many(MAX_MAPS), [""; 0]);
    assert_eq!(many(MAX_MAPS + 1), ["there are at most 64 maps"]);
}

/// Values with placeholders are limited, although maps may repeat each other.
#[test]
fn the_length_of_values_is_bounded() {
    let long = "{query.k}".repeat(100);
    let text = format!(
        "[maps.a]\ninput = \"{{query.k}}\"\nvalues = {{}}\ndefault = \"{long}\"\n\
         [maps.b]\ninput = \"{{host}}\"\nvalues = {{}}\ndefault = \"{}\"\n",
        "{map.a}".repeat(100)
    );
    let maps = maps(&text);
    for (key, expected) in [("x", 10_000), (&*"x".repeat(1_000), 0)] {
        let head = format!("GET /?k={key} HTTP/1.1\r\nHost: a");
        assert_eq!(expand(&maps, "{map.b}", &head, "").len(), expected);
    }
}
