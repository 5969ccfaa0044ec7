//! Tests that the file, the command line, the help and the documentation have the same keys.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use weft::Settings;

use crate::apps::proxy::ProxySettings;
use crate::cli::args::OTHER_OPTIONS;
use crate::cli::help::{HelpTopic, help};
use crate::config::fastcgi_keys;
use crate::config::{
    ACCESS_LOG, ACME, CGI, Config, FILES, FilesConfig, Key, LIMITS, LOG, OPTIONS, PROXY, REWRITE,
    SPLIT, STATUS, STREAM, Sources, TLS, TOP, TRACING, ValueKind, flags, quoted,
};
use crate::plan::Plan;

fn repository_path(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn repository_file(path: &str) -> String {
    let path = repository_path(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a value other than the default, as text of a file and as arguments of an option.
fn sample<T>(key: &Key<T>, defaults: &T) -> (String, Vec<OsString>) {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let texts = |texts: &[&str]| {
        let in_file: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        (format!("[{}]", in_file.join(", ")), words(texts))
    };
    match &key.kind {
        ValueKind::Bool(_) if (key.show)(defaults) == "true" => {
            ("false".to_owned(), words(&["no"]))
        }
        ValueKind::Bool(_) => ("true".to_owned(), words(&["yes"])),
        ValueKind::Count(range, _) | ValueKind::Size(range, _) => {
            let number = (range.start() + 1).to_string();
            (number.clone(), words(&[&number]))
        }
        ValueKind::Time(_) => (quoted("7s"), words(&["7s"])),
        ValueKind::Choice(known, _) => (quoted(known[1]), words(&[known[1]])),
        ValueKind::Text(_) if ["rate", "on_demand_rate"].contains(&key.name) => {
            (quoted("2/m"), words(&["2/m"]))
        }
        ValueKind::Text(_) if key.name == "on_demand_ask" => {
            (quoted("http://a/b"), words(&["http://a/b"]))
        }
        ValueKind::Text(_) if key.name == "acme_dns" => (quoted("http://a"), words(&["http://a"])),
        ValueKind::Text(_) if key.name == "staging" => {
            (quoted("https://a/"), words(&["https://a/"]))
        }
        ValueKind::Text(_) if key.name == "email" => (quoted("a@b"), words(&["a@b"])),
        ValueKind::Text(_) if key.name == "format" => (quoted("%h"), words(&["%h"])),
        ValueKind::BoolOrText(_) => (quoted("x"), words(&["x"])),
        ValueKind::Text(_)
        | ValueKind::Path(_)
        | ValueKind::WordOrPath(..)
        | ValueKind::LogTarget(_) => (quoted("x"), words(&["x"])),
        ValueKind::Texts(_) if key.name == "listen" => texts(&["127.0.0.1:1", ":2"]),
        ValueKind::Texts(_) if key.name == "sub_filter_types" => texts(&["text/css", "*"]),
        ValueKind::Texts(_) if key.name == "cors" => texts(&["https://a.example", "*"]),
        ValueKind::Texts(_)
            if ["allow", "deny", "proxy_protocol", "trusted_proxies"].contains(&key.name) =>
        {
            texts(&["10.0.0.0/8", "::1"])
        }
        ValueKind::Texts(_) if key.name == "directories" => texts(&["https://a/", "https://b/"]),
        ValueKind::Texts(_) if key.name == "challenges" => texts(&["http-01"]),
        ValueKind::Texts(_) => texts(&["a", "b"]),
        ValueKind::Rules(_) => texts(&["1h", "*.css=1d"]),
        ValueKind::Fields(_) => texts(&["X-A: b", "*.css=X-B: c"]),
        ValueKind::BoolOrPairs(_) => ("false".to_owned(), words(&["no"])),
        ValueKind::Pairs(_) => ("{ \"404\" = \"a\" }".to_owned(), words(&["404=a"])),
        ValueKind::AccessLogs(_) => unreachable!("access logs of routes have no option"),
        ValueKind::CertificatePairs(_) => {
            ("[{ cert = \"a\", key = \"b\" }]".to_owned(), words(&["a", "b"]))
        }
    }
}

#[test]
fn keys_options_and_help_correspond() {
    fn check<T>(section: &str, keys: &'static [Key<T>], defaults: &T, seen: &mut BTreeSet<String>) {
        for key in keys.iter().filter(|key| !key.flag.is_empty()) {
            let (in_file, words) = sample(key, defaults);
            let header = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
            let text = format!("{header}{} = {in_file}\n", key.name);
            let from_file = Config::parse(&Sources::of_text("f", text, Path::new("")));
            let mut from_options = Config::default();
            let set = from_options.set_option(key.flag, &words);
            assert!(matches!(set, Some(Ok(()))), "--{}: {set:?}", key.flag);
            let shown = format!("{from_file:?}");
            assert_eq!(shown, format!("{from_options:?}"), "{section} {}", key.name);
            assert_ne!(shown, format!("{:?}", Config::default()), "{section} {}", key.name);
            assert!(seen.insert(key.flag.to_owned()), "--{} belongs to two keys", key.flag);
        }
    }
    let mut seen = BTreeSet::new();
    check("", &TOP, &Default::default(), &mut seen);
    check("log", &LOG, &Default::default(), &mut seen);
    check("tls", &TLS, &Default::default(), &mut seen);
    check("acme", &ACME, &Default::default(), &mut seen);
    check("status", &STATUS, &Default::default(), &mut seen);
    check("limits", &LIMITS, &Default::default(), &mut seen);
    check("files", &FILES, &FilesConfig::defaults(), &mut seen);
    check("defaults", &OPTIONS, &Default::default(), &mut seen);
    assert_eq!(seen, flags().map(|flag| flag.name.to_owned()).collect());
    assert!(OTHER_OPTIONS.iter().all(|other| !seen.contains(*other)));
    // The help has all of these options and no others.
    seen.extend(OTHER_OPTIONS.map(str::to_owned));
    let help = help(HelpTopic::All);
    let begins = help.lines().flat_map(|line| {
        let head = line.strip_prefix("  ").filter(|line| line.starts_with('-'));
        head.into_iter()
            .flat_map(|head| head.split([' ', ',']).filter(|word| word.starts_with("--")))
    });
    let in_help: BTreeSet<String> = begins.map(|word| word[2..].to_owned()).collect();
    let switches = flags().filter(|flag| flag.is_switch).map(|flag| format!("no-{}", flag.name));
    let switches: BTreeSet<String> = switches.collect();
    let missing: Vec<_> = seen.difference(&in_help).collect();
    assert!(missing.is_empty(), "not in the help: {missing:?}");
    let known = |name: &&String| seen.contains(*name) || switches.contains(*name);
    assert_eq!(in_help.iter().find(|name| !known(name)), None, "in the help only");
    assert_eq!(help.lines().find(|line| line.chars().count() > 80), None, "a line is too long");
    let screen = crate::cli::help::help(HelpTopic::Overview);
    assert!(screen.lines().count() <= 24, "more than a screen:\n{screen}");
}

#[test]
fn every_field_of_settings_is_a_limit() {
    let shown = format!("{:#?}", Settings::default());
    let fields = shown.lines().filter_map(|line| {
        let line = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '}', ']']))?;
        line.split_once(':').map(|(name, _)| name)
    });
    assert_eq!(fields.collect::<Vec<_>>(), LIMITS.iter().map(|key| key.name).collect::<Vec<_>>());
}

/// Formats the table of a section as in the documentation.
fn table<T>(keys: &[Key<T>], defaults: &T) -> String {
    let mut table = "| key | option | default | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for key in keys {
        let default = match (key.show)(defaults) {
            none if none.is_empty() || none == "[]" => String::new(),
            default => format!("`{default}` "),
        };
        let option = match key.flag {
            "" => String::new(),
            flag => format!("`{}` ", format!("--{flag} {}", key.argument).trim_end()),
        };
        let (name, help) = (key.name, key.help);
        let list = if key.is_list() { "; a list" } else { "" };
        table.push_str(&format!("| `{name}` | {option}| {default}| {help}{list} |\n"));
    }
    table
}

/// Formats the table of a route's keys, which have no options.
fn route_table<T: Default + 'static>(keys: &'static [Key<T>]) -> String {
    route_table_of(keys, &T::default())
}

fn route_table_of<T: 'static>(
    keys: impl IntoIterator<Item = &'static Key<T>>,
    defaults: &T,
) -> String {
    let mut table = "| key | default | meaning |\n| --- | --- | --- |\n".to_owned();
    for key in keys {
        let default = match (key.show)(defaults) {
            none if none.is_empty() || none == "[]" => String::new(),
            default => format!("`{default}` "),
        };
        let list = if key.is_list() { "; a list" } else { "" };
        table.push_str(&format!("| `{}` | {default}| {}{list} |\n", key.name, key.help));
    }
    table
}

#[test]
fn documentation_has_every_key() {
    let text = repository_file("docs/configuration.md");
    let mut missing = String::new();
    let of_fastcgi = route_table_of(fastcgi_keys(), &ProxySettings::fastcgi());
    let of_logs = route_table(&ACCESS_LOG);
    let of_paths = route_table(&REWRITE);
    let of_shares = route_table(&SPLIT);
    let of_streams = route_table(&STREAM);
    let of_tracing = route_table(&TRACING);
    let own = [route_table(&PROXY), route_table(&CGI)];
    let others = [of_logs, of_paths, of_shares, of_fastcgi, of_streams, of_tracing];
    for table in own.into_iter().chain(others) {
        if !text.contains(&table) {
            missing.push_str(&table);
        }
    }
    for (title, table) in [
        ("## The top", table(&TOP, &Default::default())),
        ("## `[log]`", table(&LOG, &Default::default())),
        ("## `[tls]`", table(&TLS, &Default::default())),
        ("## `[acme]`", table(&ACME, &Default::default())),
        ("## `[status]`", table(&STATUS, &Default::default())),
        ("## `[files]`", table(&FILES, &FilesConfig::defaults())),
        ("## `[defaults]`, hosts and routes", table(&OPTIONS, &Default::default())),
        ("## `[limits]`", table(&LIMITS, &Default::default())),
    ] {
        let (_, section) = text.split_once(&format!("\n{title}\n")).expect(title);
        let section = section.split("\n## ").next().unwrap();
        if !section.contains(&table) {
            missing.push_str(&format!("{title}\n{table}"));
        }
    }
    assert!(missing.is_empty(), "docs/configuration.md should have:\n{missing}");
    let options = flags().map(|flag| flag.name).chain(OTHER_OPTIONS);
    for option in options {
        let option = format!("--{option}");
        assert!(text.contains(&option), "{option} is not in docs/configuration.md");
    }
}

#[test]
fn examples_of_the_documentation_are_valid() {
    let blocks = |text: &str| -> Vec<String> {
        let blocks = text.split("```toml\n").skip(1);
        blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
    };
    let mut pages = vec![repository_file("README.md")];
    for entry in std::fs::read_dir(repository_path("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(std::fs::read_to_string(path).unwrap());
        }
    }
    let mut examples: Vec<String> = pages.iter().flat_map(|page| blocks(page)).collect();
    examples.retain(|block| !block.starts_with("[dependencies]"));
    assert!(examples.len() > 10);
    examples.push(repository_file("deploy/weft.toml"));
    for example in examples {
        let sources = Sources::of_text("example", example.clone(), Path::new("/nowhere"));
        let config = Config::parse(&sources);
        assert_eq!(config.problems, [], "{example}");
        if !config.hosts.is_empty() || !config.streams.is_empty() {
            Plan::new(config)
                .map_err(|problems| format!("{example}\n{problems:?}"))
                .map(|_| ())
                .unwrap();
        }
    }
}
