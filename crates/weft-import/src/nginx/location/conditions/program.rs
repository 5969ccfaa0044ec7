//! The order of `set`, `if` and `return`, as nginx runs them: the cases in which a location
//! responds, each with the conditions of its requests.

use std::collections::BTreeSet;

use super::condition::{Condition, when};
use super::option;
use super::parse::{Parsed, SetValue, parse};
use crate::document::Table;
use crate::nginx::location::redirect::matches_all;
use crate::nginx::location::{Location, Pattern};
use crate::nginx::tree::Directive;
use crate::nginx::variables::split_name;

/// Maximum number of cases. A configuration with more of them has no equivalent.
const MAX_CASES: usize = 32;

/// A case, which applies to requests for which no earlier case applies.
#[derive(Clone)]
pub(crate) struct Case<'a> {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) sets: Vec<(String, SetValue)>,
    pub(crate) end: CaseEnd<'a>,
}

/// Directives that respond to the requests of a case.
#[derive(Clone, Copy)]
pub(crate) enum CaseEnd<'a> {
    /// The response in an `if` block.
    Response(&'a Directive),
    /// Directives of an `if` block, with the directives of the location.
    Content(&'a Directive),
    /// The directives of the location.
    Rest,
}

/// The cases of a block.
pub(crate) struct Program<'l, 'a> {
    location: &'l Location<'a>,
    pub(crate) cases: Vec<Case<'a>>,
    /// `if` blocks whose conditions have no equivalent.
    unknown: BTreeSet<usize>,
    has_overflow: bool,
}

impl<'l, 'a> Program<'l, 'a> {
    /// Runs the directives of a block from the state at the end of another one.
    pub(crate) fn run(
        location: &'l Location<'a>,
        block: &'a [Directive],
        start: Option<&Case<'a>>,
    ) -> Program<'l, 'a> {
        let mut program =
            Program { location, cases: Vec::new(), unknown: BTreeSet::new(), has_overflow: false };
        let directives: Vec<&Directive> = block.iter().collect();
        let rest = Case { conditions: Vec::new(), sets: Vec::new(), end: CaseEnd::Rest };
        let start = start.unwrap_or(&rest).clone();
        program.steps(&directives, start.clone());
        if program.has_overflow {
            program.cases = vec![start];
        }
        program
    }

    /// Returns true if the program has the responses of an `if` block, or if no request reaches it.
    pub(crate) fn has(&self, directive: &Directive) -> bool {
        !self.unknown.contains(&directive.id) && !self.has_overflow
    }

    /// Returns the cases in which the directives of the location respond.
    pub(crate) fn rests(&self) -> impl Iterator<Item = &Case<'a>> {
        self.cases.iter().filter(|case| !matches!(case.end, CaseEnd::Response(_)))
    }

    fn steps(&mut self, directives: &[&'a Directive], mut case: Case<'a>) {
        for (index, directive) in directives.iter().enumerate() {
            match &*directive.name {
                "set" => set(directive, &mut case),
                "return" | "break" => break,
                "if" => match self.branch(directive, &mut case, &directives[index + 1..]) {
                    Step::Next => {}
                    Step::End => return,
                },
                _ => {}
            }
        }
        self.push(case);
    }

    /// Runs an `if` block. In `case`, its condition is not met afterwards.
    fn branch(
        &mut self,
        directive: &'a Directive,
        case: &mut Case<'a>,
        next: &[&'a Directive],
    ) -> Step {
        if option(self.location, directive, &mut Table::default()) {
            return Step::Next;
        }
        let parsed = match can_be_case(directive) {
            true => parse(self.location, &directive.condition(), &case.sets),
            false => Parsed::Unknown,
        };
        let mut inner = case.clone();
        let is_always = match parsed {
            Parsed::Known(false) => return Step::Next,
            Parsed::Known(true) => true,
            Parsed::Depends(condition) => {
                let is_always = inner.conditions.contains(&condition);
                if !is_always {
                    inner.conditions.push(condition);
                }
                let is_named = matches!(self.location.pattern, Pattern::Named(_));
                if when(&inner.conditions).is_none() || is_named {
                    return self.skip(directive, case);
                }
                is_always
            }
            Parsed::Unknown => return self.skip(directive, case),
        };
        match enter(directive, &mut inner) {
            BlockEnd::Stops => self.push(inner),
            BlockEnd::Continues => self.steps(next, inner),
        }
        if is_always { Step::End } else { Step::Next }
    }

    /// Passes over a block whose condition is not known: its variables have unknown values.
    fn skip(&mut self, directive: &'a Directive, case: &mut Case<'a>) -> Step {
        self.unknown.insert(directive.id);
        for child in directive.children().iter().filter(|child| child.name == "set") {
            case.sets.push((name_of(child), SetValue::Unknown));
        }
        Step::Next
    }

    fn push(&mut self, case: Case<'a>) {
        if self.cases.len() == MAX_CASES {
            self.has_overflow = true;
        } else {
            self.cases.push(case);
        }
    }
}

/// Continuation behind an `if` block.
enum Step {
    Next,
    /// The block applies to all requests of the case.
    End,
}

/// End of the directives in an `if` block.
enum BlockEnd {
    Stops,
    Continues,
}

/// Runs the directives in an `if` block whose condition is met.
fn enter<'a>(directive: &'a Directive, case: &mut Case<'a>) -> BlockEnd {
    for child in directive.children() {
        match &*child.name {
            "set" => set(child, case),
            "return" | "rewrite" => {
                case.end = CaseEnd::Response(directive);
                return BlockEnd::Stops;
            }
            "break" => return BlockEnd::Stops,
            _ => case.end = CaseEnd::Content(directive),
        }
    }
    BlockEnd::Continues
}

/// Returns true if an equivalent of a block is possible: a `rewrite` applies to all paths, and
/// there are no groups of the condition's regular expression.
fn can_be_case(directive: &Directive) -> bool {
    let has_group = |text: &String| {
        text.match_indices('$')
            .any(|(at, _)| text[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
    };
    let condition = directive.condition();
    let has_regex = [" ~ ", " ~* "].iter().any(|operator| condition.contains(operator));
    directive.children().iter().all(|child| match &*child.name {
        "rewrite" => matches_all(child.arg(0)) && !(has_regex && child.arg(0).contains('(')),
        _ => !has_regex || !child.args.iter().any(has_group),
    })
}

fn name_of(set: &Directive) -> String {
    set.arg(0).trim_start_matches('$').to_owned()
}

/// Sets a variable, with the values that other variables have at this place.
fn set(directive: &Directive, case: &mut Case<'_>) {
    let name = name_of(directive);
    let value = expanded(directive.arg(1), &case.sets);
    case.sets.retain(|(known, _)| *known != name);
    case.sets.push((name, value));
}

/// Returns a text with the values of variables that `set` has changed.
fn expanded(text: &str, sets: &[(String, SetValue)]) -> SetValue {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('$') {
        out.push_str(before);
        let (name, next) = split_name(behind);
        match sets.iter().find(|(known, _)| known == name) {
            Some((_, SetValue::Text(value))) => out.push_str(value),
            Some((_, SetValue::Unknown)) => return SetValue::Unknown,
            None => out.push_str(&format!("${{{name}}}")),
        }
        rest = next;
    }
    SetValue::Text(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_the_values_of_their_place() {
        let sets =
            [("a".to_owned(), SetValue::Text("1".to_owned())), ("b".to_owned(), SetValue::Unknown)];
        let text = |text: &str| SetValue::Text(text.to_owned());
        for (from, expected) in [
            ("x", text("x")),
            ("${a}b", text("1b")),
            ("$a$host", text("1${host}")),
            ("$ab", text("${ab}")),
            ("$a$b", SetValue::Unknown),
        ] {
            assert_eq!(expanded(from, &sets), expected, "{from}");
        }
    }
}
