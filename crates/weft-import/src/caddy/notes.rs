//! Comments about directives that are not carried over as they are.

use std::cell::{Cell, RefCell};

use super::tree::Directive;

/// Notes of the case that is being evaluated.
#[derive(Default)]
pub(super) struct Notes {
    current: RefCell<Vec<String>>,
    has_loss: Cell<bool>,
}

impl Notes {
    fn push(&self, directive: &Directive, text: &str) {
        self.push_text(format!("{}: `{}`: {text}", directive.at, directive.text()));
    }

    /// Reports something of a site that is not carried over.
    pub(super) fn lost_text(&self, at: &str, reason: &str) {
        self.has_loss.set(true);
        self.push_text(format!("{at}: not carried over: {reason}"));
    }

    fn push_text(&self, note: String) {
        let mut notes = self.current.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Reports a directive that is not carried over, or that has another meaning.
    pub(super) fn lost(&self, directive: &Directive, reason: impl AsRef<str>) {
        self.has_loss.set(true);
        self.push(directive, &format!("not carried over: {}", reason.as_ref()));
    }

    /// Reports a directive that is carried over in another way with the same purpose.
    pub(super) fn adapted(&self, directive: &Directive, note: impl AsRef<str>) {
        self.push(directive, note.as_ref());
    }

    /// Returns the notes since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        self.current.take()
    }

    pub(super) fn has_loss(&self) -> bool {
        self.has_loss.get()
    }
}
