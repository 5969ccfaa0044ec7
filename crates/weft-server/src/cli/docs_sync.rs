//! Tests that the file, the command line, the help and the documentation have the same keys.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use weft::Settings;
use weft_config::{
    SectionKey, Sources, ValueType, quoted, reference_table, reference_table_without_options,
};

use crate::apps::{FORMS, REWRITE};
use crate::cli::args::OTHER_OPTIONS;
use crate::cli::help::{HelpTopic, help};
use crate::config::{Config, flags, sections};
use crate::options::access_log::ACCESS_LOG;
use crate::plan::Plan;
use crate::route::SPLIT;
use crate::sections::limits::LIMITS;
use crate::sections::streams::STREAM;

fn repository_path(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn repository_file(path: &str) -> String {
    let path = repository_path(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a value other than the default, as text of a file and as arguments of an option.
fn sample<S>(key: &impl SectionKey<S>, defaults: &S) -> (String, Vec<OsString>) {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let texts = |texts: &[&str]| {
        let in_file: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        (format!("[{}]", in_file.join(", ")), words(texts))
    };
    let spec = key.spec();
    match spec.value_type {
        ValueType::Bool if key.show(defaults) == "true" => ("false".to_owned(), words(&["no"])),
        ValueType::Bool => ("true".to_owned(), words(&["yes"])),
        ValueType::Count(range) | ValueType::Size(range) => {
            let number = (range.start() + 1).to_string();
            (number.clone(), words(&[&number]))
        }
        ValueType::Time => (quoted("7s"), words(&["7s"])),
        ValueType::Choice(known) => (quoted(known[1]), words(&[known[1]])),
        ValueType::Text if ["rate", "on_demand_rate"].contains(&spec.name) => {
            (quoted("2/m"), words(&["2/m"]))
        }
        ValueType::Text if spec.name == "on_demand_ask" => {
            (quoted("http://a/b"), words(&["http://a/b"]))
        }
        ValueType::Text if spec.name == "acme_dns" => (quoted("http://a"), words(&["http://a"])),
        ValueType::Text if spec.name == "staging" => (quoted("https://a/"), words(&["https://a/"])),
        ValueType::Text if spec.name == "email" => (quoted("a@b"), words(&["a@b"])),
        ValueType::Text if spec.name == "umask" => (quoted("027"), words(&["027"])),
        ValueType::Text if spec.name == "format" => (quoted("%h"), words(&["%h"])),
        ValueType::BoolOrText => (quoted("x"), words(&["x"])),
        ValueType::Text | ValueType::Path | ValueType::WordOrPath(_) => {
            (quoted("x"), words(&["x"]))
        }
        ValueType::Texts if spec.name == "listen" => texts(&["127.0.0.1:1", ":2"]),
        ValueType::Texts if spec.name == "sub_filter_types" => texts(&["text/css", "*"]),
        ValueType::Texts if spec.name == "cors" => texts(&["https://a.example", "*"]),
        ValueType::Texts
            if ["allow", "deny", "proxy_protocol", "trusted_proxies"].contains(&spec.name) =>
        {
            texts(&["10.0.0.0/8", "::1"])
        }
        ValueType::Texts if spec.name == "directories" => texts(&["https://a/", "https://b/"]),
        ValueType::Texts if spec.name == "challenges" => texts(&["http-01"]),
        ValueType::Texts => texts(&["a", "b"]),
        ValueType::Rules => texts(&["1h", "*.css=1d"]),
        ValueType::Fields => texts(&["X-A: b", "*.css=X-B: c"]),
        ValueType::BoolOrPairs => ("false".to_owned(), words(&["no"])),
        ValueType::Pairs => ("{ \"404\" = \"a\" }".to_owned(), words(&["404=a"])),
        ValueType::Custom(_) if spec.name != "certificates" => (quoted("x"), words(&["x"])),
        ValueType::Custom(_) => ("[{ cert = \"a\", key = \"b\" }]".to_owned(), words(&["a", "b"])),
    }
}

#[test]
fn keys_options_and_help_correspond() {
    let (unset, defaults) = (Config::default(), Config::shown_defaults());
    let mut seen = BTreeSet::new();
    for section in sections() {
        for key in section.keys.iter().filter(|key| !key.spec().flag.is_empty()) {
            let (name, flag) = (key.name(), key.spec().flag);
            let (in_file, words) = sample(key, &defaults);
            let header = match section.name {
                "" => String::new(),
                section => format!("[{section}]\n"),
            };
            let text = format!("{header}{name} = {in_file}\n");
            let from_file = Config::parse(&Sources::of_text("f", text, Path::new("")));
            let mut from_options = Config::default();
            let set = from_options.set_option(flag, &words);
            assert!(matches!(set, Some(Ok(()))), "--{flag}: {set:?}");
            let shown = format!("{from_file:?}");
            assert_eq!(shown, format!("{from_options:?}"), "{header}{name}");
            assert_ne!(shown, format!("{unset:?}"), "{header}{name}");
            assert!(seen.insert(flag.to_owned()), "--{flag} belongs to two keys");
        }
    }
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

#[test]
fn documentation_has_every_key() {
    let text = repository_file("docs/configuration.md");
    let mut missing = String::new();
    let of_forms = FORMS.iter().filter(|form| ["proxy", "fastcgi", "cgi"].contains(&(form.name)()));
    let of_forms = of_forms.map(|form| (form.reference)());
    let others = [
        reference_table_without_options(&ACCESS_LOG, &Default::default()),
        reference_table_without_options(&REWRITE, &Default::default()),
        reference_table_without_options(&SPLIT, &Default::default()),
        reference_table_without_options(&STREAM, &Default::default()),
    ];
    for table in of_forms.chain(others) {
        if !text.contains(&table) {
            missing.push_str(&table);
        }
    }
    let defaults = Config::shown_defaults();
    for section in sections() {
        let title = match section.name {
            "" => "## The top".to_owned(),
            "defaults" => "## `[defaults]`, hosts and routes".to_owned(),
            name => format!("## `[{name}]`"),
        };
        let table = match section.help_group {
            "" => reference_table_without_options(&section.keys, &defaults),
            _ => reference_table(&section.keys, &defaults),
        };
        let (_, of_section) = text.split_once(&format!("\n{title}\n")).expect(&title);
        let of_section = of_section.split("\n## ").next().unwrap();
        if !of_section.contains(&table) {
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
