//! Field names that were seen before.
//!
//! Clients send the same few names again and again. Making a `HeaderName` of one takes a
//! search among the registered names, and for any other an allocation; finding it here takes
//! a comparison.

use std::cell::RefCell;

use http::HeaderName;

/// How many names are kept: more than a client sends.
const PLACES: usize = 64;

/// Longer names are rare, and not worth keeping.
const LONGEST: usize = 64;

/// The name that was last seen for each place.
#[derive(Clone)]
pub(super) struct Names(RefCell<Vec<Option<Seen>>>);

#[derive(Clone)]
struct Seen {
    written: Box<[u8]>,
    name: HeaderName,
}

impl Names {
    pub(super) fn new() -> Names {
        Names(RefCell::new(vec![None; PLACES]))
    }

    /// The name that is written so.
    ///
    /// # Panics
    /// If it is no token.
    pub(super) fn get(&self, written: &[u8]) -> HeaderName {
        let mut places = self.0.borrow_mut();
        let place = &mut places[place(written)];
        match place {
            Some(seen) if *seen.written == *written => seen.name.clone(),
            _ => {
                let name =
                    HeaderName::from_bytes(written).expect("the parser lets only tokens pass");
                if written.len() <= LONGEST {
                    *place = Some(Seen { written: written.into(), name: name.clone() });
                }
                name
            }
        }
    }
}

/// Length and last letters tell the usual names apart well enough.
fn place(written: &[u8]) -> usize {
    let last = written.iter().rev().take(3).fold(0, |sum, &b| sum * 37 + usize::from(b | 0x20));
    (written.len() * 7 + last) % PLACES
}
