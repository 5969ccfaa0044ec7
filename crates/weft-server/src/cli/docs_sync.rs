//! Tests that the file, the command line, the help and the documentation have the same keys.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use weft::Settings;
use weft_config::{SectionKey, Sources, ValueType, quoted, reference_table};

use crate::cli::args::OTHER_OPTIONS;
use crate::cli::file_reference::parts_of_file;
use crate::cli::help::{HelpTopic, help};
use crate::config::{Config, Plan, flags, sections};
use crate::options::key_names;
use crate::sections::limits::LIMITS;

fn repository_path(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn repository_file(path: &str) -> String {
    let path = repository_path(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Values for keys of texts. Each of these keys accepts at least one value that is not its default.
const TEXTS: [&str; 8] =
    ["2/m", "%h", "a@b", "027", "https://a/", "http://a/b", "10.0.0.0/8", "127.0.0.1:1"];
const LISTS: [&[&str]; 6] = [
    &["http-01"],
    &["https://a.example", "https://b.example"],
    &["10.0.0.0/8", "::1"],
    &["127.0.0.1:1", ":2"],
    &["text/css", "*"],
    &["a", "b"],
];

/// Returns values other than the default, each as text of a file and as arguments of an option. The
/// key accepts one of them.
fn samples<S>(key: &impl SectionKey<S>, defaults: &S) -> Vec<(String, Vec<OsString>)> {
    let same = |text: &str| (text.to_owned(), vec![text.into()]);
    let text = |text: &&str| (quoted(text), vec![text.into()]);
    let texts = |texts: &&[&str]| {
        let in_file: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        (format!("[{}]", in_file.join(", ")), texts.iter().map(OsString::from).collect())
    };
    let one = match key.spec().value_type {
        ValueType::Bool if key.show(defaults) == "true" => ("false".to_owned(), vec!["no".into()]),
        ValueType::Bool => ("true".to_owned(), vec!["yes".into()]),
        ValueType::Count(range) | ValueType::Size(range) => same(&(range.start() + 1).to_string()),
        ValueType::Time => text(&"7s"),
        ValueType::Choice(known) => text(&known[1]),
        ValueType::Text => return std::iter::once(&"x").chain(&TEXTS).map(text).collect(),
        ValueType::BoolOrText | ValueType::Path | ValueType::WordOrPath(_) => text(&"x"),
        ValueType::Texts => return LISTS.iter().map(texts).collect(),
        ValueType::Rules => texts(&&["1h", "*.css=1d"][..]),
        ValueType::Fields => texts(&&["X-A: b", "*.css=X-B: c"][..]),
        ValueType::BoolOrPairs => ("false".to_owned(), vec!["no".into()]),
        ValueType::Pairs => ("{ \"404\" = \"a\" }".to_owned(), vec!["404=a".into()]),
        ValueType::Custom(custom) if custom.is_list => {
            ("[{ cert = \"a\", key = \"b\" }]".to_owned(), vec!["a".into(), "b".into()])
        }
        ValueType::Custom(_) => text(&"x"),
    };
    vec![one]
}

#[test]
fn keys_options_and_help_correspond() {
    let (unset, defaults) = (Config::default(), Config::shown_defaults());
    let mut seen = BTreeSet::new();
    for section in sections() {
        for key in section.keys.iter().filter(|key| !key.spec().flag.is_empty()) {
            let (name, flag) = (key.name(), key.spec().flag);
            let mut from_options = Config::default();
            let accepted = samples(key, &defaults).into_iter().find(|(_, words)| {
                from_options = Config::default();
                matches!(from_options.set_option(flag, words), Some(Ok(())))
            });
            let (in_file, _) = accepted.unwrap_or_else(|| panic!("--{flag} accepts no sample"));
            let header = match section.name {
                "" => String::new(),
                section => format!("[{section}]\n"),
            };
            let text = format!("{header}{name} = {in_file}\n");
            let from_file = Config::parse(&Sources::of_text("f", text, Path::new("")));
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

/// The tables of the reference are made of the keys. `WEFT_WRITE_DOCS=1` writes them.
#[test]
fn docs_are_made_of_the_keys() {
    const END: &str = "<!-- end of keys -->";
    let page = "docs/configuration.md";
    let text = repository_file(page);
    let mut made = text.clone();
    for (name, entries) in parts_of_file() {
        let table = reference_table(&entries);
        let mark = format!("<!-- keys of {name} -->\n");
        let Some((begin, rest)) = made.split_once(&mark) else { panic!("{page} has no {mark}") };
        let (_, end) = rest.split_once(END).unwrap_or_else(|| panic!("{mark} has no {END}"));
        made = format!("{begin}{mark}\n{table}\n{END}{end}");
    }
    if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
        std::fs::write(repository_path(page), &made).unwrap();
        return;
    }
    let command = "WEFT_WRITE_DOCS=1 cargo test -p weft-server docs_are_made";
    assert!(text == made, "{command}\nwrites {page}, which differs from the keys");
    for option in flags().map(|flag| flag.name).chain(OTHER_OPTIONS) {
        let option = format!("--{option}");
        assert!(text.contains(&option), "{option} is not in {page}");
    }
}

/// The help of a choice lists its words: the reference has no other list.
#[test]
fn help_of_choices_has_their_words() {
    for spec in sections().iter().flat_map(|section| &section.keys).map(|key| key.spec()) {
        if let ValueType::Choice(words) = spec.value_type
            && words.len() < 10
        {
            let missing = words.iter().find(|word| !spec.help.contains(**word));
            assert_eq!(missing, None, "{}: {}", spec.name, spec.help);
        }
    }
}

#[test]
fn documentation_has_the_order_of_the_options() {
    let text = repository_file("docs/configuration.md");
    let (_, list) = text.split_once("passes through the options in this order").expect("the list");
    let list = list.split("\n\n").nth(1).expect("a paragraph");
    // An item begins with its keys, and explains them behind a colon or a full stop.
    let items = list.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let subjects = items.map(|item| item.split_once(". ").expect("a number").1);
    let subjects = subjects.map(|item| item.split([':', '.', ';']).next().unwrap_or_default());
    let keys: Vec<&str> = subjects.flat_map(|it| it.split('`').skip(1).step_by(2)).collect();
    let options = key_names();
    let option_of = |key: &&str| options.iter().position(|option| option.contains(key));
    let mut order: Vec<_> = keys.iter().map(|key| option_of(key).expect(key)).collect();
    order.dedup();
    // `access_log`, the last one, has no middleware.
    assert_eq!(order, (0..options.len() - 1).collect::<Vec<_>>(), "{keys:?} of {options:?}");
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
