//! `header` and `request_header`.

use super::super::chain::{Chain, Flow};
use super::super::outcome::Outcome;
use super::super::tree::Directive;
use super::super::values::placeholders::template;

/// Options that a field belongs to.
pub(super) struct Options {
    set: &'static str,
    remove: &'static str,
}

pub(super) const RESPONSE: Options =
    Options { set: "response_headers", remove: "remove_response_headers" };
pub(super) const REQUEST: Options =
    Options { set: "request_headers", remove: "remove_request_headers" };

pub(super) fn response(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    change(chain, directive, args, &RESPONSE, outcome);
    for child in directive.children().iter().filter(|child| child.name != "defer") {
        let words: Vec<String> =
            std::iter::once(child.name.clone()).chain(child.args.iter().cloned()).collect();
        change(chain, child, &words, &RESPONSE, outcome);
    }
    Flow::Next
}

pub(super) fn request(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    change(chain, directive, args, &REQUEST, outcome);
    Flow::Next
}

/// Translates `NAME VALUE`, `-NAME`, `+NAME VALUE` or `?NAME VALUE`.
pub(super) fn change(
    chain: &Chain<'_>,
    directive: &Directive,
    words: &[String],
    options: &Options,
    outcome: &mut Outcome,
) {
    let Some((name, values)) = words.split_first() else { return };
    let (operator, field) = match name.split_at_checked(1) {
        Some((operator @ ("-" | "+" | "?" | ">"), field)) => (operator, field),
        _ => ("", &**name),
    };
    let is_of_server = ["date", "connection"].iter().any(|own| field.eq_ignore_ascii_case(own));
    match (operator, values) {
        _ if is_of_server => chain.lost(directive, "the server sets this field itself"),
        ("-", []) if field.contains('*') => {
            chain.lost(directive, "names of fields have no pattern");
        }
        ("-", []) => outcome.add_to(options.remove, [field.to_owned()]),
        ("" | "+" | "?" | ">", [value]) => match template(value, outcome) {
            Ok(value) => {
                let operator = if operator == ">" { "" } else { operator };
                outcome.set_in(options.set, &format!("{operator}{field}"), value);
            }
            Err(name) => chain.lost(directive, format!("{name} has no equivalent")),
        },
        (_, [_, _]) => chain.lost(directive, "parts of values cannot be replaced"),
        _ => chain.lost(directive, "there is no equivalent"),
    }
}
