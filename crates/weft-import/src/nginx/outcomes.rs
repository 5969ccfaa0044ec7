//! The outcome of each directive: carried over or not, and the reason.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::directives::{Treatment, treatment};
use super::tree::Directive;
use crate::values;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Carried,
    /// Carried over in another way with the same purpose.
    Adapted(String),
    /// Not carried over, or with another meaning.
    Lost(String),
}

/// Outcomes by directive. A directive that several hosts or locations inherit has several outcomes.
#[derive(Default)]
pub(super) struct Outcomes(RefCell<BTreeMap<usize, Vec<Outcome>>>);

impl Outcomes {
    fn add(&self, directive: &Directive, outcome: Outcome) {
        let mut outcomes = self.0.borrow_mut();
        let known = outcomes.entry(directive.id).or_default();
        if !known.contains(&outcome) {
            known.push(outcome);
        }
    }

    pub(super) fn carried(&self, directive: &Directive) {
        self.add(directive, Outcome::Carried);
    }

    /// Marks a directive and all in its block as carried over.
    pub(super) fn carried_with_block(&self, directive: &Directive) {
        self.carried(directive);
        directive.children().iter().for_each(|child| self.carried_with_block(child));
    }

    pub(super) fn adapted(&self, directive: &Directive, note: impl Into<String>) {
        self.add(directive, Outcome::Adapted(note.into()));
    }

    pub(super) fn lost(&self, directive: &Directive, reason: impl Into<String>) {
        self.add(directive, Outcome::Lost(reason.into()));
    }

    /// Converts a time such as `1h30m`; `None` for an invalid one or 0, which is reported.
    pub(super) fn time(&self, directive: &Directive, text: &str) -> Option<String> {
        self.converted(directive, values::time(text), "the time is invalid")
    }

    /// Converts a size such as `10m`; `None` for an invalid one, which is reported.
    pub(super) fn size(&self, directive: &Directive, text: &str) -> Option<String> {
        self.converted(directive, values::size(text), "the size is invalid")
    }

    /// Parses a number; `None` for an invalid one, which is reported.
    pub(super) fn number(&self, directive: &Directive, text: &str) -> Option<u64> {
        self.converted(directive, text.parse().ok(), "the number is invalid")
    }

    fn converted<T>(&self, directive: &Directive, value: Option<T>, reason: &str) -> Option<T> {
        if value.is_none() {
            self.lost(directive, reason);
        }
        value
    }

    pub(super) fn is_lost(&self, directive: &Directive) -> bool {
        self.of(directive).iter().any(|outcome| matches!(outcome, Outcome::Lost(_)))
    }

    /// Returns the outcomes of a directive. If nothing has read the directive, its name determines
    /// the outcome.
    fn of(&self, directive: &Directive) -> Vec<Outcome> {
        let known = self.0.borrow().get(&directive.id).cloned();
        known.unwrap_or_else(|| match treatment(&directive.name) {
            Some(Treatment::Translated | Treatment::Default) => vec![Outcome::Carried],
            Some(Treatment::Lost(reason)) => vec![Outcome::Lost(reason.to_owned())],
            None => vec![Outcome::Lost("this directive is not known".to_owned())],
        })
    }

    /// Returns the notes about the directives in the block of a directive.
    pub(super) fn block_notes(&self, directive: &Directive) -> Vec<String> {
        let mut report = Report::new();
        self.notes(directive.children(), &mut report);
        report.notes
    }

    /// Appends a note for each directive of a block that was not carried over as it is. Nested
    /// blocks are included, unless they have notes of their own.
    pub(super) fn notes(&self, block: &[Directive], report: &mut Report) {
        for directive in block {
            let outcomes = self.of(directive);
            for outcome in &outcomes {
                match outcome {
                    Outcome::Carried => {}
                    Outcome::Adapted(note) => report.push(directive, "", note),
                    Outcome::Lost(reason) => {
                        report.is_complete = false;
                        report.push(directive, "not carried over: ", reason);
                    }
                }
            }
            let has_own_notes = matches!(&*directive.name, "http" | "server" | "location");
            if !self.is_lost(directive) && !has_own_notes && has_directives(directive) {
                self.notes(directive.children(), report);
            }
        }
    }
}

/// Returns true if the lines of the directive's block are directives, and not values.
fn has_directives(directive: &Directive) -> bool {
    !matches!(&*directive.name, "map" | "geo" | "split_clients" | "types" | "charset_map")
}

/// Notes in the order of the configuration.
#[derive(Default)]
pub(super) struct Report {
    pub(super) notes: Vec<String>,
    pub(super) is_complete: bool,
}

impl Report {
    pub(super) fn new() -> Report {
        Report { notes: Vec::new(), is_complete: true }
    }

    fn push(&mut self, directive: &Directive, kind: &str, note: &str) {
        self.notes.push(format!("{}: `{}`: {kind}{note}", directive.at, directive.text()));
    }
}
