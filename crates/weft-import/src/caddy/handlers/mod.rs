//! Directives that handle requests.

mod paths; // root, rewrite, uri, try_files
mod upstreams; // addresses of upstreams
mod access; // authentication
mod fields; // fields of requests and responses
mod files; // files and scripts
mod proxy; // reverse_proxy
mod responses; // redirects and fixed responses

use super::chain::{Chain, Context, Flow, Scopes};
use super::outcome::{Outcome, Responder};
use super::tree::Directive;
use super::values::maps;
use super::values::placeholders::template;
use crate::values;

/// Runs a directive for the requests of a case.
pub(super) fn run<'a>(
    chain: &Chain<'a>,
    directive: &'a Directive,
    args: &'a [String],
    scopes: &Scopes<'a>,
    outcome: &mut Outcome,
) -> Flow {
    match &*directive.name {
        "handle" => chain.block(directive.children(), true, scopes, outcome),
        "route" => chain.block(directive.children(), false, scopes, outcome),
        "handle_path" => {
            let prefix = directive.arg(0).trim_end_matches(['*', '/']);
            outcome.stripped.push_str(prefix);
            chain.block(directive.children(), true, scopes, outcome)
        }
        "root" => paths::root(chain, directive, args, outcome),
        "rewrite" => paths::rewrite(chain, directive, args, scopes, outcome),
        "uri" => paths::uri(chain, directive, args, outcome),
        "try_files" => paths::try_files(args, outcome),
        "header" => fields::response(chain, directive, args, outcome),
        "request_header" => fields::request(chain, directive, args, outcome),
        "basicauth" | "basic_auth" => access::password(chain, directive, args, outcome),
        "forward_auth" => access::forward_auth(chain, directive, args, outcome),
        "respond" => responses::respond(chain, directive, args, outcome),
        "redir" => responses::redirect(chain, directive, args, outcome),
        "error" => responses::error(chain, directive, args, outcome),
        "abort" => responses::abort(chain, directive, outcome),
        "reverse_proxy" => proxy::run(chain, directive, args, outcome),
        "php_fastcgi" => files::php(chain, directive, args, outcome),
        "file_server" => files::run(chain, directive, args, outcome),
        name => other(chain, directive, args, name, outcome),
    }
}

/// Runs directives that are options, and those without an equivalent.
fn other<'a>(
    chain: &Chain<'a>,
    directive: &'a Directive,
    args: &'a [String],
    name: &str,
    outcome: &mut Outcome,
) -> Flow {
    match name {
        // They belong to the site.
        "bind" | "tls" | "log" | "handle_errors" => {}
        "encode" => outcome.options.set("compress", true),
        "tracing" => outcome.options.set("tracing", true),
        "skip_log" | "log_skip" => outcome.options.set("access_log", false),
        "request_body" => request_body(chain, directive, outcome),
        "vars" => variables(chain, directive, args, outcome),
        "map" => map(chain, directive, args, outcome),
        "push" => chain.lost(directive, "browsers have no server push any more"),
        "method" => chain.lost(directive, "upstreams get the method of the client"),
        "intercept" | "log_append" | "log_name" | "copy_response_headers" => {
            chain.lost(directive, "there is no equivalent");
        }
        _ => {
            chain.lost(directive, refusal(name));
            outcome.refuse();
            return Flow::Done;
        }
    }
    Flow::Next
}

/// Returns the reason for which the paths of a directive are refused.
fn refusal(name: &str) -> &'static str {
    match name {
        "templates" => "files would be sent with their templates, so that their paths are refused",
        "metrics" => "`[status] listen` has the metrics; the path is refused",
        "acme_server" => "there is no certificate authority; the path is refused",
        _ => "this directive is not known, so that its paths are refused",
    }
}

/// Completes the outcome behind the last directive.
pub(super) fn finish(_: &Chain<'_>, _: &[Directive], outcome: &mut Outcome) {
    if let (Some(php), Responder::None) = (outcome.php.take(), &outcome.responder) {
        outcome.responder = Responder::Fastcgi(php);
    }
}

fn request_body(chain: &Chain<'_>, directive: &Directive, outcome: &mut Outcome) {
    for child in directive.children() {
        match (&*child.name, size(child.arg(0))) {
            ("max_size", Some(size)) => outcome.options.set("max_body_bytes", size),
            _ => chain.lost(child, "there is no equivalent"),
        }
    }
}

/// Converts a size such as `10MB` or `1.5GiB`.
pub(super) fn size(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "kib" | "ki" => 1 << 10,
        "mib" | "mi" => 1 << 20,
        "gib" | "gi" => 1 << 30,
        _ => return None,
    };
    let bytes = match number.parse::<u64>() {
        Ok(number) => number.checked_mul(factor)?,
        Err(_) => (number.parse::<f64>().ok()? * factor as f64) as u64,
    };
    Some(weft_config::show_size(bytes))
}

/// Converts a duration such as `1m30s`; `None` for 0.
pub(super) fn time(text: &str) -> Option<String> {
    // A number alone has no unit in Go.
    values::time(text).filter(|_| text.ends_with(|c: char| c.is_ascii_alphabetic()))
}

fn variables(chain: &Chain<'_>, directive: &Directive, args: &[String], outcome: &mut Outcome) {
    let of_line = match args {
        [name, value] => vec![(name, value)],
        _ => Vec::new(),
    };
    let of_block = directive.children().iter().filter_map(|it| Some((&it.name, it.args.first()?)));
    for (name, value) in of_line.into_iter().chain(of_block) {
        match template(value, outcome) {
            Ok(value) => outcome.variables.insert(0, (name.clone(), value)),
            Err(name) => chain.lost(directive, format!("{name} has no equivalent")),
        }
    }
}

/// Sets the variables of a `map`.
fn map(chain: &Chain<'_>, directive: &Directive, args: &[String], outcome: &mut Outcome) {
    for (index, name) in args.iter().skip(1).enumerate() {
        let Context { maps, target, .. } = chain.context;
        match maps::value(maps, directive, index, outcome, *target) {
            Some(value) => {
                outcome.variables.insert(0, (name.trim_matches(['{', '}']).to_owned(), value));
            }
            None => {
                chain.lost(directive, "its values have no equivalent before the route is known")
            }
        }
    }
}
