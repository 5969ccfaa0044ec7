//! The directive `log`: access logs.

use super::handlers::size;
use super::notes::Notes;
use super::tree::Directive;
use crate::document::{Document, Table, Value};

/// Returns the access log of a site, as an option of routes; `None` without one.
pub(super) fn access_log(
    block: &[Directive],
    notes: &Notes,
    document: &mut Document,
) -> Option<Value> {
    let directive = block.iter().rfind(|it| it.name == "log")?;
    let (mut to, mut format) = (Some("stderr".to_owned()), "json");
    for child in directive.children() {
        match (&*child.name, child.arg(0)) {
            ("output", "file") => {
                to = Some(child.arg(1).to_owned());
                child.children().iter().for_each(|it| rotation(it, notes, document));
            }
            ("output", "discard") => to = None,
            ("output", name @ ("stdout" | "stderr")) => to = Some(name.to_owned()),
            ("format", "console") => format = "combined",
            ("format", "json") | ("level", _) => {}
            ("format", _) => notes.lost(child, "`format` of `[log]` names the values of lines"),
            _ => notes.lost(child, "there is no equivalent"),
        }
    }
    Some(match to {
        None => false.into(),
        Some(to) => {
            let mut log = Table::default();
            log.set("to", to);
            log.set("format", format);
            log.into()
        }
    })
}

fn rotation(option: &Directive, notes: &Notes, document: &mut Document) {
    let log = document.section("log");
    match (&*option.name, option.arg(0)) {
        ("roll_size", text) => log.set_some("max_bytes", size(&text.replace("MB", "MiB"))),
        ("roll_keep", text) => {
            if let Ok(number @ 1..=1_000) = text.parse::<u64>() {
                log.set("max_files", number);
            }
        }
        ("roll_disabled", _) => log.set("max_bytes", "0B"),
        _ => notes.lost(option, "files are rotated by their size"),
    }
}
