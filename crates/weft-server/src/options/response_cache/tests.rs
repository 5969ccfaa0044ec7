use std::path::Path;

use weft_config::Sources;

use crate::config::{Config, Plan, print_plan};

fn plan(value: &str) -> Result<Plan, String> {
    let text =
        format!("[hosts.\"*\"]\n\"/\" = {{ proxy = \"http://a/\", response_cache = {value} }}\n");
    let config = Config::parse(&Sources::of_text("f", text, Path::new("")));
    Plan::new(config).map_err(|problems| problems[0].message.clone())
}

/// Returns the printed value of the route.
fn printed(value: &str) -> String {
    let printed = print_plan(&plan(value).unwrap());
    let rest = printed.split_once("response_cache = {").expect(value).1;
    rest.split_once("finish_abandoned").expect(value).0.to_owned()
}

#[test]
fn prints_what_it_reads() {
    for (value, expected) in [
        ("true", "max_object = \"8MiB\", min_uses = 1"),
        ("{ min_uses = 2, max_object = 1000 }", "max_object = \"1000B\", min_uses = 2"),
        ("{ query = [] }", "query = []"),
        ("{ query = [\"!= a\", \"!= b\"] }", "query = [\"!= a\", \"!= b\"]"),
        ("{ key_cookies = [\"a\"] }", "key_cookies = [\"a\"]"),
        (
            "{ lifetimes = { 200 = \"10m\", 5xx = \"1s\" } }",
            "lifetimes = { \"200\" = \"10m\", \"5xx\" = \"1s\" }",
        ),
        (
            "{ bypass = { cookie = { session = true } } }",
            "bypass = { cookie = { \"session\" = true } }",
        ),
        (
            "{ refresh = { header = { x = true } }, no_store = { query = { a = true } } }",
            "refresh = { header = { \"x\" = true } }, no_store = { query = { \"a\" = true } }",
        ),
    ] {
        let once = printed(value);
        assert!(once.contains(expected), "{value}: {once}");
        assert_eq!(printed(&format!("{{{once}finish_abandoned = true }}")), once);
    }
    assert!(!print_plan(&plan("false").unwrap()).contains("response_cache ="));
    // The section of the store is printed only with other values.
    assert!(!print_plan(&plan("true").unwrap()).contains("[response_cache]"));
}

#[test]
fn explains_invalid_values() {
    for (value, expected) in [
        ("3", "expected true, false, or a table"),
        ("{ min_use = 1 }", "unknown key `min_use`; did you mean `min_uses`?"),
        ("{ min_uses = 0 }", "expected a number from 1 to 1000"),
        ("{ query = [\"a=b\"] }", "expected the name of a parameter"),
        ("{ query = [\"a\", \"!= b\"] }", "either all names have `!=`, or none"),
        ("{ key_cookies = [\"a b\"] }", "expected the name of a cookie"),
        ("{ key_fields = [\"a b\"] }", "expected the name of a field"),
        ("{ lifetimes = { 20 = \"1s\" } }", "expected a status"),
        ("{ lifetimes = { 200 = \"1x\" } }", "expected a time"),
        ("{ no_store = {} }", "an empty table would match every request"),
        ("{ bypass = {} }", "an empty table would match every request"),
    ] {
        let problem = plan(value).expect_err(value);
        assert!(problem.contains(expected), "{value}: {problem}");
    }
    let many: Vec<_> = (0..=super::settings::MAX_ITEMS).map(|it| format!("\"n{it}\"")).collect();
    for key in ["query", "key_fields", "key_cookies"] {
        let problem = plan(&format!("{{ {key} = [{}] }}", many.join(", "))).expect_err(key);
        assert_eq!(problem, "expected at most 64 names");
        plan(&format!("{{ {key} = [{}] }}", many[1..].join(", "))).expect(key);
    }
}
