//! The forms of files that the server compresses, and their state.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::Method;

use crate::compression::Coding;
use crate::files::file_representation::Representation;
use crate::message::response::Response;

/// Responses from the cache after which a file is compressed with more effort: that takes four
/// times as long, and saves a fifth of the bytes of each further response.
const POPULAR_USES: u32 = 16;

/// A form of a file that the server compresses: a variant and a coding.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodedForm {
    pub(super) variant: usize,
    pub(super) coding: Coding,
}

/// The state of a [`CodedForm`]. Only the worker of its cache accesses it, so the lock is free.
#[derive(Debug, Default)]
pub(super) struct CodedSlot(Mutex<SlotState>);

#[derive(Debug, Default)]
pub(super) enum SlotState {
    #[default]
    Empty,
    /// A request waits for the compression of the file, whose size is reserved in the cache.
    Compressing { reserved: u64 },
    /// Compression does not make the file smaller.
    NotSmaller,
    /// The result of the fast level, and the number of responses that were made of it.
    Fast(Representation, u32),
    /// The result of the fast level, while the file is compressed with more effort.
    Improving(Representation),
    /// The smallest of the results.
    Best(Representation),
}

/// Response from a [`CodedSlot`].
pub(super) enum SlotResponse {
    Empty,
    /// The file is sent without the coding.
    Uncoded,
    Coded(Response),
    /// As `Coded`; the file is worth more effort.
    Popular(Response),
}

impl CodedSlot {
    pub(super) fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the response to a request for this form. Only a `GET` makes it more popular.
    pub(super) fn respond(&self, method: &Method) -> SlotResponse {
        match &mut *self.lock() {
            SlotState::Empty => SlotResponse::Empty,
            SlotState::Compressing { .. } | SlotState::NotSmaller => SlotResponse::Uncoded,
            SlotState::Fast(form, _) if *method != Method::GET => {
                SlotResponse::Coded(form.to_response())
            }
            SlotState::Fast(form, uses) => {
                *uses += 1;
                match *uses > POPULAR_USES {
                    true => SlotResponse::Popular(form.to_response()),
                    false => SlotResponse::Coded(form.to_response()),
                }
            }
            SlotState::Improving(form) | SlotState::Best(form) => {
                SlotResponse::Coded(form.to_response())
            }
        }
    }

    /// Bytes of memory that the form holds or will hold.
    pub(super) fn bytes(&self) -> usize {
        match &*self.lock() {
            SlotState::Empty | SlotState::NotSmaller => 0,
            SlotState::Compressing { reserved } => *reserved as usize,
            SlotState::Fast(form, _) | SlotState::Improving(form) | SlotState::Best(form) => {
                form.length() as usize
            }
        }
    }

    /// Returns true if the form was worth more effort.
    pub(super) fn is_best(&self) -> bool {
        matches!(*self.lock(), SlotState::Best(_))
    }

    pub(super) fn set(&self, state: SlotState) {
        *self.lock() = state;
    }

    /// Begins to improve the result of the fast level, or begins to count again.
    pub(super) fn begin_improving(&self, may_begin: bool) {
        let mut state = self.lock();
        *state = match mem::take(&mut *state) {
            SlotState::Fast(form, _) if may_begin => SlotState::Improving(form),
            SlotState::Fast(form, _) => SlotState::Fast(form, 0),
            other => other,
        };
    }

    /// Stores the outcome of a compression of a file with this representation.
    pub(super) fn finish(&self, identity: &Representation, coding: Coding, outcome: Outcome) {
        let mut state = self.lock();
        let is_cancelled = matches!(outcome, Outcome::Cancelled);
        let shorter = |than: &Representation| match outcome {
            Outcome::Compressed(bytes) if (bytes.len() as u64) < than.length() => {
                Some(identity.with_coding(coding, bytes))
            }
            _ => None,
        };
        *state = match mem::take(&mut *state) {
            SlotState::Compressing { .. } if is_cancelled => SlotState::Empty,
            SlotState::Compressing { .. } => match shorter(identity) {
                Some(form) => SlotState::Fast(form, 0),
                None => SlotState::NotSmaller,
            },
            SlotState::Improving(fast) => SlotState::Best(shorter(&fast).unwrap_or(fast)),
            other => other,
        };
    }
}

/// Outcome of a compression.
pub(super) enum Outcome {
    Compressed(Bytes),
    Cancelled,
    /// The file cannot be read or compressed. This is not tried again for each request.
    Failed,
}
