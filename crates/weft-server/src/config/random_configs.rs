//! Random configuration files: the files of `tests/config`, with random changes.
//!
//! `WEFT_CONFIGS` sets the number of files, and `WEFT_TEST_SEED` the seed of a former run:
//!
//! ```sh
//! WEFT_CONFIGS=1000000 cargo test --release -p weft-server random_configs
//! ```

#[path = "../../tests/it/common/random.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod random;

use std::fs;
use std::path::Path;

use weft_config::Sources;

use self::random::{Random, environment_number};
use super::{Config, Plan, print_plan};

/// Texts with a meaning in TOML, paths, patterns, templates, sizes and times.
const PIECES: [&str; 40] = [
    "\"",
    "'",
    "\\",
    "\\n",
    "\\u0000",
    "\\u007f",
    "{",
    "}",
    "{{",
    "{path}",
    "{1}",
    "[",
    "]",
    "[\"\"]",
    "\"\"",
    "=",
    "#",
    "\n",
    "\r",
    "\t",
    " ",
    ",",
    "*",
    "~ ",
    "= ",
    "/",
    "//",
    "..",
    "%2F",
    "@a",
    ":",
    "0",
    "-1",
    "1e9",
    "99999999999999999999",
    "1 GiB",
    "1 h",
    "true",
    "é",
    "\u{10ffff}",
];

/// Number of files that are tried.
const FILES: u64 = 4_000;

/// Minimum share of them that is valid: otherwise little is tested.
const MIN_VALID: f64 = 0.05;

/// No file causes a panic, and what is printed of a valid one has the same meaning and is printed
/// in the same way.
#[test]
fn printed_files_have_the_same_meaning() {
    let texts = texts();
    // The same files in each run, so that it fails only after a change.
    let mut random = Random::with_default_seed(1);
    let files = environment_number("WEFT_CONFIGS").unwrap_or(FILES);
    let mut valid = 0;
    for _ in 0..files {
        let text = change(&texts, &mut random);
        let Ok(plan) = parse(&text) else { continue };
        valid += 1;
        let printed = print_plan(&plan);
        let again = parse(&printed)
            .unwrap_or_else(|problems| panic!("{text}\n-- printed:\n{printed}\n-- {problems:#?}"));
        assert_eq!(print_plan(&again), printed, "{text}");
        assert_eq!(with_explicit_defaults(plan), again, "{text}\n-- printed:\n{printed}");
    }
    println!("{valid} of {files} files are valid");
    assert!(valid as f64 >= MIN_VALID * files as f64, "only {valid} of {files} files are valid");
}

/// Returns the plan as if its default addresses were in the file, as they are when it is printed.
fn with_explicit_defaults(mut plan: Plan) -> Plan {
    let tls = plan.tls.as_mut().map(|tls| &mut tls.listen);
    for addresses in [&mut plan.top.listen, &mut plan.status.listen].into_iter().chain(tls) {
        addresses.are_defaults &= addresses.list.is_empty();
    }
    plan
}

fn parse(text: &str) -> Result<Plan, Vec<String>> {
    let sources = Sources::of_text("file", text.to_owned(), Path::new("/nowhere"));
    let problems = |problems: Vec<_>| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut plan = Plan::new(Config::parse(&sources)).map_err(problems)?;
    // A printed file sets for each route what it inherits, also without effect.
    plan.warnings.clear();
    Ok(plan)
}

/// The files of `tests/config`, without lines that read other files.
fn texts() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let folders = ["good", "bad"].map(|name| fs::read_dir(folder.join(name)).unwrap());
    let mut paths: Vec<_> =
        folders.into_iter().flatten().map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    let texts = paths.iter().map(|path| fs::read_to_string(path).unwrap());
    let without_include = |text: String| {
        let lines = text.lines().filter(|line| !line.contains("include"));
        lines.map(|line| format!("{line}\n")).collect()
    };
    texts.map(without_include).collect()
}

/// Returns one of the texts with one or two changes.
fn change(texts: &[String], random: &mut Random) -> String {
    let mut text = random.choose(texts).clone();
    for _ in 0..1 + random.below(2) {
        let mut lines: Vec<_> = text.split_inclusive('\n').collect();
        let other: Vec<_> = random.choose(texts).split_inclusive('\n').collect();
        let at = random.below(lines.len().max(1));
        let line = *random.choose(&other);
        let changed;
        match random.below(5) {
            0 => lines.insert(at, line),
            1 => drop((!lines.is_empty()).then(|| lines.remove(at))),
            // The value of another key.
            2 => {
                if let (Some((key, _)), Some((_, value))) =
                    (lines.get(at).and_then(|line| line.split_once(" = ")), line.split_once(" = "))
                {
                    changed = format!("{key} = {value}");
                    lines[at] = &changed;
                }
            }
            kind => {
                if let Some(line) = lines.get_mut(at) {
                    let mut chars: Vec<_> = line.chars().map(String::from).collect();
                    let column = random.below(chars.len());
                    let piece = random.choose(&PIECES).to_string();
                    match kind {
                        3 => chars.insert(column, piece),
                        _ => chars[column] = piece,
                    }
                    changed = chars.concat();
                    *line = &changed;
                }
            }
        }
        text = lines.concat();
    }
    text
}
