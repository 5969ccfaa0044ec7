//! `file_server` and `php_fastcgi`.

use super::super::chain::{Chain, Flow};
use super::super::outcome::{Outcome, Responder};
use super::super::tree::Directive;
use super::{paths, time, upstreams};
use crate::document::{Table, Value};
use crate::regex::escape;

pub(super) fn run(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let mut table = Table::default();
    let mut has_listings = args.iter().any(|arg| arg == "browse");
    for child in directive.children() {
        match &*child.name {
            "root" => {
                let _ = paths::root(chain, child, &child.args, outcome);
            }
            "index" => table.set("index", Value::one_or_list(child.args.clone())),
            "browse" => {
                has_listings = true;
                if !child.args.is_empty() {
                    chain.lost(child, "listings have the page of Weft");
                }
            }
            "precompressed" | "disable_canonical_uris" => {}
            "hide" => child.args.iter().for_each(|name| hide(chain, child, name, outcome)),
            // The file is sent with another status.
            "status" => refuse(chain, child, outcome),
            "pass_thru" => chain.lost(child, "a path without a file gets 404"),
            _ => chain.lost(child, "there is no equivalent"),
        }
    }
    if outcome.is_refused() {
        return Flow::Done;
    }
    if has_listings && outcome.hidden.is_empty() {
        table.set("list", true);
    } else if has_listings {
        chain.lost(directive, "listings would have the hidden names, so that there are none");
    }
    if outcome.root.is_none() {
        outcome.root = Some(chain.context.base.to_string_lossy().into_owned());
    }
    outcome.responder = match outcome.php.take() {
        Some(php) => {
            table.add(&php);
            Responder::Php(table)
        }
        None => Responder::Files(table),
    };
    Flow::Done
}

fn refuse(chain: &Chain<'_>, directive: &Directive, outcome: &mut Outcome) {
    chain.lost(directive, "there is no equivalent; its paths are refused");
    outcome.refuse();
}

/// Adds an expression for the paths of hidden files.
fn hide(chain: &Chain<'_>, directive: &Directive, name: &str, outcome: &mut Outcome) {
    let glob = |text: &str| -> String {
        let parts = text.split('*').map(escape);
        parts.collect::<Vec<_>>().join("[^/]*")
    };
    let base = || chain.context.base.to_string_lossy().into_owned();
    let root = outcome.root.clone().unwrap_or_else(base);
    let regex = match name {
        _ if name.contains(['{', '[', '?']) => return refuse(chain, directive, outcome),
        // Weft does not serve such names.
        _ if name.starts_with('.') && !name.contains(['/', '*']) && name != ".well-known" => return,
        _ if !name.contains('/') => format!("/{}(/|$)", glob(name)),
        _ => {
            let folder = chain.context.base.join(name);
            let folder: std::path::PathBuf = folder.components().collect();
            let Ok(below) = folder.strip_prefix(&root) else {
                // It is in another folder.
                return;
            };
            format!("^/{}(/|$)", glob(&below.to_string_lossy()))
        }
    };
    outcome.hidden.push(regex);
}

pub(super) fn php(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let Some(addresses) = fastcgi_addresses(chain, directive, args, outcome) else {
        return Flow::Done;
    };
    let mut table = Table::default();
    table.set("php", Value::one_or_list(addresses));
    table.set("fallback", "index.php");
    fastcgi_options(chain, directive.children(), &mut table, outcome);
    outcome.php = Some(table);
    Flow::Next
}

/// Returns the addresses of applications; `None` if there is none, or one without an equivalent. The
/// paths of the directive are refused then.
pub(super) fn fastcgi_addresses(
    chain: &Chain<'_>,
    directive: &Directive,
    addresses: &[String],
    outcome: &mut Outcome,
) -> Option<Vec<String>> {
    let found = addresses.iter().map(|address| upstreams::fastcgi(address));
    let found = found.collect::<Option<Vec<_>>>().map(|all| all.concat());
    let found = found.filter(|all| !all.is_empty());
    if found.is_none() {
        chain.lost(directive, "its address has no equivalent; its paths are refused");
        outcome.refuse();
    }
    found
}

/// Adds the keys of the options of FastCGI.
pub(super) fn fastcgi_options(
    chain: &Chain<'_>,
    options: &[Directive],
    table: &mut Table,
    outcome: &mut Outcome,
) {
    let mut environment = Vec::new();
    for option in options {
        match &*option.name {
            "env" if !option.arg(1).contains('{') => {
                environment.push(format!("{}={}", option.arg(0), option.arg(1)));
            }
            "root" if outcome.root.is_some() => table.set("script_root", option.arg(0)),
            "root" => {
                let _ = paths::root(chain, option, &option.args, outcome);
            }
            "index" if option.arg(0) == "off" => table.remove("fallback"),
            "index" => table.set("fallback", option.arg(0)),
            "try_files" => front_controller(chain, option, table),
            "split" if option.args == [".php"] => {}
            "dial_timeout" => table.set_some("connect_timeout", time(option.arg(0))),
            "read_timeout" => table.set_some("response_timeout", time(option.arg(0))),
            "write_timeout" | "resolve_root_symlink" | "capture_stderr" => {}
            _ => chain.lost(option, "there is no equivalent"),
        }
    }
    table.set_filled("environment", environment);
}

/// Sets the script for paths without a file, the last one of `try_files`.
fn front_controller(chain: &Chain<'_>, option: &Directive, table: &mut Table) {
    let last = option.args.last().map(|last| last.trim_start_matches('/'));
    match last {
        Some(last) if last.ends_with(".php") && !last.contains('{') => table.set("fallback", last),
        Some("=404") => table.remove("fallback"),
        _ => {
            table.remove("fallback");
            chain.lost(option, "a path without a file gets 404");
        }
    }
}
