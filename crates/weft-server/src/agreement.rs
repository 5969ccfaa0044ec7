//! That the file, the command line and the documentation say the same.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use weft::Settings;

use crate::args::OTHER_OPTIONS;
use crate::config::{
    CGI, Config, FILES, FilesConfig, Key, LIMITS, LOG, PROXY, STATUS, TLS, TOP, Takes, Text, flags,
    quoted,
};
use crate::help::help;
use crate::plan::Plan;

fn repository(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Something that is not the default, as a file has it and as options have it.
fn sample<T>(key: &Key<T>, defaults: &T) -> (String, Vec<OsString>) {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let texts = |texts: &[&str]| {
        let in_file: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        (format!("[{}]", in_file.join(", ")), words(texts))
    };
    match &key.takes {
        Takes::Switch(_) if (key.show)(defaults) == "true" => ("false".to_owned(), words(&["no"])),
        Takes::Switch(_) => ("true".to_owned(), words(&["yes"])),
        Takes::Count(range, _) | Takes::Size(range, _) => {
            let number = (range.start() + 1).to_string();
            (number.clone(), words(&[&number]))
        }
        Takes::Time(_) => (quoted("7s"), words(&["7s"])),
        Takes::Choice(known, _) => (quoted(known[1]), words(&[known[1]])),
        Takes::Text(_) if key.name == "format" => (quoted("%h"), words(&["%h"])),
        Takes::Text(_) | Takes::Path(_) | Takes::WordOrPath(..) => (quoted("x"), words(&["x"])),
        Takes::Texts(_) if key.name == "listen" => texts(&["127.0.0.1:1", ":2"]),
        Takes::Texts(_) if key.name == "proxies" => texts(&["10.0.0.0/8", "::1"]),
        Takes::Texts(_) => texts(&["a", "b"]),
        Takes::Rules(_) => texts(&["1h", "*.css=1d"]),
        Takes::Fields(_) => texts(&["X-A: b", "*.css=X-B: c"]),
        Takes::Pairs(_) => ("[{ cert = \"a\", key = \"b\" }]".to_owned(), words(&["a", "b"])),
    }
}

#[test]
fn each_key_is_an_option_and_the_other_way_round() {
    fn check<T>(section: &str, keys: &'static [Key<T>], defaults: &T, met: &mut BTreeSet<String>) {
        for key in keys {
            let (in_file, words) = sample(key, defaults);
            let header = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
            let text = Text::new("f", format!("{header}{} = {in_file}\n", key.name));
            let of_file = Config::parse(&text, Path::new("")).unwrap();
            let mut of_options = Config::default();
            let set = of_options.set_option(key.flag, &words);
            assert!(matches!(set, Some(Ok(()))), "--{}: {set:?}", key.flag);
            let shown = format!("{of_file:?}");
            assert_eq!(shown, format!("{of_options:?}"), "{section} {}", key.name);
            assert_ne!(shown, format!("{:?}", Config::default()), "{section} {}", key.name);
            assert!(met.insert(key.flag.to_owned()), "--{} stands for two", key.flag);
        }
    }
    let mut met = BTreeSet::new();
    check("", &TOP, &Default::default(), &mut met);
    check("log", &LOG, &Default::default(), &mut met);
    check("tls", &TLS, &Default::default(), &mut met);
    check("status", &STATUS, &Default::default(), &mut met);
    check("limits", &LIMITS, &Default::default(), &mut met);
    check("files", &FILES, &FilesConfig::defaults(), &mut met);
    assert_eq!(met, flags().map(|flag| flag.name.to_owned()).collect());
    assert!(OTHER_OPTIONS.iter().all(|other| !met.contains(*other)));
    // All of these, and no others, are in the help.
    met.extend(OTHER_OPTIONS.map(str::to_owned));
    let help = help();
    let begins = help.lines().flat_map(|line| {
        let head = line.strip_prefix("  ").filter(|line| line.starts_with('-'));
        head.into_iter()
            .flat_map(|head| head.split([' ', ',']).filter(|word| word.starts_with("--")))
    });
    let in_help: BTreeSet<String> = begins.map(|word| word[2..].to_owned()).collect();
    let switches = flags().filter(|flag| flag.is_switch).map(|flag| format!("no-{}", flag.name));
    let switches: BTreeSet<String> = switches.collect();
    let missing: Vec<_> = met.difference(&in_help).collect();
    assert!(missing.is_empty(), "not in the help: {missing:?}");
    let known = |name: &&String| met.contains(*name) || switches.contains(*name);
    assert_eq!(in_help.iter().find(|name| !known(name)), None, "in the help only");
    assert!(help.lines().all(|line| line.chars().count() <= 80), "a line is too long");
}

#[test]
fn all_settings_are_limits() {
    let shown = format!("{:#?}", Settings::default());
    let fields = shown.lines().filter_map(|line| {
        let line = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '}', ']']))?;
        line.split_once(':').map(|(name, _)| name)
    });
    assert_eq!(fields.collect::<Vec<_>>(), LIMITS.iter().map(|key| key.name).collect::<Vec<_>>());
}

/// The table of a section, as the documentation has it.
fn table<T>(keys: &[Key<T>], defaults: &T) -> String {
    let mut table = "| key | option | default | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for key in keys {
        let default = match (key.show)(defaults) {
            none if none.is_empty() || none == "[]" => String::new(),
            default => format!("`{default}` "),
        };
        let option = format!("--{} {}", key.flag, key.argument);
        let (name, option, help) = (key.name, option.trim_end(), key.help);
        let list = if key.is_list() { "; a list" } else { "" };
        table.push_str(&format!("| `{name}` | `{option}` | {default}| {help}{list} |\n"));
    }
    table
}

/// The keys of a route's table, which are no options.
fn route_table<T: Default>(keys: &[Key<T>]) -> String {
    let mut table = "| key | default | meaning |\n| --- | --- | --- |\n".to_owned();
    for key in keys {
        let default = match (key.show)(&T::default()) {
            none if none.is_empty() || none == "[]" => String::new(),
            default => format!("`{default}` "),
        };
        let list = if key.is_list() { "; a list" } else { "" };
        table.push_str(&format!("| `{}` | {default}| {}{list} |\n", key.name, key.help));
    }
    table
}

#[test]
fn each_key_is_documented() {
    let text = repository("docs/configuration.md");
    let mut missing = String::new();
    for table in [route_table(&PROXY), route_table(&CGI)] {
        if !text.contains(&table) {
            missing.push_str(&table);
        }
    }
    for (title, table) in [
        ("## The top", table(&TOP, &Default::default())),
        ("## `[log]`", table(&LOG, &Default::default())),
        ("## `[tls]`", table(&TLS, &Default::default())),
        ("## `[status]`", table(&STATUS, &Default::default())),
        ("## `[files]`", table(&FILES, &FilesConfig::defaults())),
        ("## `[limits]`", table(&LIMITS, &Default::default())),
    ] {
        let (_, section) = text.split_once(&format!("\n{title}\n")).expect(title);
        let section = section.split("\n## ").next().unwrap();
        if !section.contains(&table) {
            missing.push_str(&format!("{title}\n{table}"));
        }
    }
    assert!(missing.is_empty(), "docs/configuration.md should have:\n{missing}");
    let readme = repository("README.md");
    for flag in
        flags().map(|flag| flag.name).filter(|flag| LIMITS.iter().all(|key| key.flag != *flag))
    {
        assert!(readme.contains(&format!("--{flag}")), "--{flag} is not in the README");
    }
}

#[test]
fn the_examples_can_be_planned() {
    let docs = repository("docs/configuration.md");
    let readme = repository("README.md");
    let blocks = |text: &str| -> Vec<String> {
        let blocks = text.split("```toml\n").skip(1);
        blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
    };
    let in_readme =
        blocks(&readme).into_iter().filter(|block| !block.starts_with("[dependencies]"));
    let mut examples: Vec<String> = blocks(&docs).into_iter().chain(in_readme).collect();
    assert!(examples.len() > 3);
    examples.push(repository("deploy/weft.toml"));
    for example in examples {
        let text = Text::new("example", example.clone());
        let config = Config::parse(&text, Path::new(""))
            .unwrap_or_else(|problems| panic!("{example}\n{problems:?}"));
        if !config.hosts.is_empty() {
            Plan::new(config)
                .map_err(|problems| format!("{example}\n{problems:?}"))
                .map(|_| ())
                .unwrap();
        }
    }
}
