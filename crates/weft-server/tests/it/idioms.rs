//! Everyday tasks of web servers: for each file in `tests/idioms` the same requests are sent to
//! nginx, to Caddy, to Weft with the configuration of the file, and to Weft with the imported
//! configuration of nginx. Each difference is in the table of the file with its reason, and each
//! row of the table occurs.
//!
//! `WEFT_IDIOM=NAME` selects the files whose names have that text.

pub mod exchange;
pub mod file;
pub mod servers;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;

use self::exchange::{Addresses, Parts, is_random, read_log, send};
use self::file::{Difference, Idiom, Request, read_all};
use self::servers::{
    LogsOf, Upstreams, caddy_addresses, start_caddy_for, start_imported, start_nginx_for,
    start_written, write_files,
};
use crate::common::external::PhpFpm;
use crate::common::{has_tool, repository};

/// Idioms that are tested at the same time.
const THREADS: usize = 4;

#[test]
fn idioms_work_as_in_nginx_and_caddy() {
    // All of them, so that each missing one is reported.
    if ["nginx", "caddy", "curl"].map(has_tool).contains(&false) {
        return;
    }
    let mut idioms = read_all();
    let selected = std::env::var("WEFT_IDIOM").unwrap_or_default();
    idioms.retain(|idiom| idiom.name.contains(&selected));
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path());
    for idiom in &idioms {
        std::fs::create_dir(folder.path().join(&idiom.name)).unwrap();
    }
    let upstreams = Upstreams::start();
    let uses_php = idioms.iter().any(|idiom| idiom.toml.contains("php-fpm.sock"));
    let _php = uses_php.then(|| PhpFpm::start(&folder.path().join("run")));
    let has_caddy = idioms.iter().any(|idiom| idiom.caddy.is_some());
    let _caddy = has_caddy.then(|| start_caddy_for(&idioms, folder.path(), upstreams));
    let next = Mutex::new(idioms.iter().enumerate());
    let report = Mutex::new(String::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some((index, idiom)) = next.lock().unwrap().next() else { return };
                    let differences = compare(idiom, index, folder.path(), upstreams);
                    report.lock().unwrap().push_str(&differences);
                }
            });
        }
    });
    let report = report.into_inner().unwrap();
    assert!(report.is_empty(), "{} idioms:\n{report}", idioms.len());
}

/// Sends the requests of an idiom to all servers. Returns the differences without a reason.
fn compare(idiom: &Idiom, index: usize, folder: &Path, upstreams: Upstreams) -> String {
    let mut report = String::new();
    let (_weft, written) = start_written(idiom, folder, upstreams);
    let nginx = idiom.nginx.as_ref().map(|_| start_nginx_for(idiom, index, folder, upstreams));
    let imported = nginx.as_ref().map(|_| start_imported(idiom, index, folder, upstreams));
    if let Some((output, ..)) = &imported {
        let expected = if idiom.is_lossy { Ok(3) } else { Ok(0) };
        if output.status != expected {
            writeln!(report, "{}: import: {:?}\n{}", idiom.name, output.status, output.stdout)
                .unwrap();
        }
    }
    let exchange = |addresses: Addresses, logs: LogsOf| -> Vec<Vec<Parts>> {
        let all = |request: &Request| {
            let responses = request.statuses.iter().map(|_| match &request.log {
                Some(log) => read_log(log, &logs.folder(folder)),
                None => send(addresses, request, folder),
            });
            responses.map(|parts| select(parts, idiom, upstreams)).collect()
        };
        idiom.requests.iter().map(all).collect()
    };
    let of_weft = exchange(written, LogsOf::Written);
    let mut others = Vec::new();
    if let Some((_program, addresses)) = &nginx {
        let of_nginx = exchange(*addresses, LogsOf::Nginx);
        if let Some((_, _weft, addresses)) = &imported {
            others.push(("imported", exchange(*addresses, LogsOf::Imported), of_nginx.clone()));
        }
        others.push(("nginx", of_weft.clone(), of_nginx));
    }
    if idiom.caddy.is_some() {
        others.push(("caddy", of_weft.clone(), exchange(caddy_addresses(index), LogsOf::Caddy)));
    }
    for (request, responses) in idiom.requests.iter().zip(&of_weft) {
        let statuses: Vec<&str> = responses.iter().map(|parts| &*parts["status"]).collect();
        let expected: Vec<String> = request.statuses.iter().map(ToString::to_string).collect();
        if statuses != expected {
            writeln!(report, "{}: {}: {statuses:?}", idiom.name, request.line).unwrap();
        }
    }
    let mut used = vec![false; idiom.differences.len()];
    for (server, ours, theirs) in &others {
        for (number, request) in idiom.requests.iter().enumerate() {
            for (ours, theirs) in ours[number].iter().zip(&theirs[number]) {
                for (part, our, their) in differing(ours, theirs) {
                    let mut explained = false;
                    for (difference, used) in idiom.differences.iter().zip(&mut used) {
                        let explains = difference.explains(server, request, part);
                        *used |= explains;
                        explained |= explains;
                    }
                    if !explained {
                        let (name, line) = (&idiom.name, &request.line);
                        let [our, their] = [our, their].map(shortened);
                        writeln!(
                            report,
                            "{name}: {server}: {line}: {part}: {our:?}, not {their:?}"
                        )
                        .unwrap();
                    }
                }
            }
        }
    }
    for (difference, _) in idiom.differences.iter().zip(used).filter(|(_, used)| !used) {
        writeln!(report, "{}: does not occur: {}", idiom.name, difference.line).unwrap();
    }
    report
}

/// Keeps the fields that the upstream received and that the idiom mentions.
fn select(mut parts: Parts, idiom: &Idiom, upstreams: Upstreams) -> Parts {
    let texts = [&idiom.nginx, &idiom.caddy, &Some(idiom.toml.clone())];
    let mut text: String = texts.into_iter().flatten().map(|text| text.to_lowercase()).collect();
    idiom.requests.iter().for_each(|request| text.push_str(&request.line.to_lowercase()));
    let is_shown = |line: &&str| match line.split_once(": ") {
        Some((name, _)) => name == "host" || mentions(&text, name),
        None => true,
    };
    // The upstream shows the fields that it has received.
    if let Some(body) = parts.get_mut("body").filter(|body| body.contains("\nhost: ")) {
        let without_id = |line: &str| match line.split_once(": ") {
            Some((name, value)) if is_random(value) => format!("{name}: random"),
            _ => line.to_owned(),
        };
        let lines: Vec<String> = body.lines().filter(is_shown).map(without_id).collect();
        *body = upstreams.restore(&lines.join("\n"));
    }
    parts
}

/// Returns true if a text has this name of a field.
fn mentions(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut at = text.match_indices(name).map(|(at, _)| (&text[..at], &text[at + name.len()..]));
    name != "connection" && at.any(|(a, b)| !a.ends_with(is_part) && !b.starts_with(is_part))
}

/// Returns the parts in which two responses differ, with both values.
fn differing<'a>(ours: &'a Parts, theirs: &'a Parts) -> Vec<(&'a str, &'a str, &'a str)> {
    let value = |parts: &'a Parts, name: &str| parts.get(name).map_or("", |value| value);
    let mut names: Vec<&str> = ours.keys().chain(theirs.keys()).map(|name| &**name).collect();
    names.sort_unstable();
    names.dedup();
    let both = names.into_iter().map(|name| (name, value(ours, name), value(theirs, name)));
    both.filter(|(_, ours, theirs)| ours != theirs).collect()
}

/// Returns the beginning of a long text.
fn shortened(text: &str) -> String {
    text.chars().take(400).collect()
}

/// The part of each guide with the idioms is made of them. `WEFT_WRITE_DOCS=1` writes it.
#[test]
fn docs_are_made_of_the_idioms() {
    for server in ["nginx", "caddy"] {
        let page = format!("docs/migrating-from-{server}.md");
        let text = std::fs::read_to_string(repository(&page)).unwrap();
        let (begin, rest) = text.split_once("\n## Idioms\n").expect("a part with idioms");
        let (_, end) = rest.split_once("\n## Not possible yet\n").expect("a part behind it");
        let idioms: String =
            read_all().iter().filter_map(|idiom| in_guide(idiom, server)).collect();
        let made =
            format!("{begin}\n## Idioms\n{INTRODUCTION}{idioms}\n## Not possible yet\n{end}");
        if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
            std::fs::write(repository(&page), &made).unwrap();
            continue;
        }
        let command = "WEFT_WRITE_DOCS=1 cargo test -p weft-server docs_are_made";
        assert!(text == made, "{command}\nwrites {page}, which differs from the idioms");
    }
}

const INTRODUCTION: &str = "
Each pair was run side by side with the same requests, and the responses were compared. The files in
`crates/weft-server/tests/idioms` have the requests, and this part is made of them.
";

/// Returns an idiom as a part of a guide; `None` if the server does not have it.
fn in_guide(idiom: &Idiom, server: &str) -> Option<String> {
    let theirs = if server == "nginx" { &idiom.nginx } else { &idiom.caddy }.as_ref()?;
    let mut text = format!("\n### {}\n\n", idiom.title);
    write!(text, "```{server}\n{}\n```\n\n```toml\n{}\n```\n", theirs.trim(), idiom.toml.trim())
        .unwrap();
    let differences = idiom.differences.iter().filter(|difference| difference.server == server);
    for (number, Difference { request, part, reason, .. }) in differences.enumerate() {
        let begin = if number == 0 { "\nDifferences:\n\n" } else { "" };
        let part = if part == "*" { "response" } else { part };
        let of = if request == "*" { String::new() } else { format!(" of `{request}`") };
        writeln!(text, "{begin}- {part}{of}: {reason}").unwrap();
    }
    Some(text)
}

/// Each directive and option of the idioms is in the guide for its server.
#[test]
fn guides_have_the_directives_of_the_idioms() {
    let idioms = read_all();
    for (page, blocks) in [
        (
            "docs/migrating-from-nginx.md",
            idioms.iter().map(|idiom| &idiom.nginx).collect::<Vec<_>>(),
        ),
        ("docs/migrating-from-caddy.md", idioms.iter().map(|idiom| &idiom.caddy).collect()),
    ] {
        let text = std::fs::read_to_string(repository(page)).unwrap();
        let (guide, _) = text.split_once("\n## Idioms\n").expect("a list of idioms");
        let lines = blocks.into_iter().flatten().flat_map(|block| block.lines());
        let words = lines.filter_map(|line| line.split_whitespace().next());
        let words = words.map(|word| word.trim_end_matches(';'));
        // Addresses of sites, matchers, texts, numbers and users are no directives.
        let is_name = |word: &&str| {
            let is_part = |b: u8| b.is_ascii_lowercase() || b == b'_';
            word.bytes().all(is_part) && *word != "alice"
        };
        let missing: std::collections::BTreeSet<&str> =
            words.filter(is_name).filter(|word| !mentions(guide, word)).collect();
        assert!(missing.is_empty(), "{page} should have {missing:?}");
    }
}
