//! Field names that were seen before.
//!
//! Clients send the same few names again and again. Making a `HeaderName` of one takes a
//! search among the registered names, and for any other an allocation; finding it here takes
//! a comparison.

use std::cell::RefCell;

use http::{HeaderName, header};

/// How many names are kept: more than a client sends.
const PLACES: usize = 64;

/// Longer names are rare, and not worth keeping.
const LONGEST: usize = 64;

/// Of fields that say the same in request after request, and nothing that is secret. Those that
/// are not registered are here for a second reason: to copy a static name counts no references.
static STEADY: [HeaderName; 24] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_TYPE,
    header::DNT,
    header::HOST,
    header::PRAGMA,
    header::TE,
    header::UPGRADE_INSECURE_REQUESTS,
    header::USER_AGENT,
    HeaderName::from_static("priority"),
    HeaderName::from_static("sec-ch-ua"),
    HeaderName::from_static("sec-ch-ua-mobile"),
    HeaderName::from_static("sec-ch-ua-platform"),
    HeaderName::from_static("sec-fetch-dest"),
    HeaderName::from_static("sec-fetch-mode"),
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-user"),
    HeaderName::from_static("sec-gpc"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-requested-with"),
];

pub(super) fn is_steady(name: &HeaderName) -> bool {
    STEADY.contains(name)
}

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
                let name = parse(written);
                if written.len() <= LONGEST {
                    *place = Some(Seen { written: written.into(), name: name.clone() });
                }
                name
            }
        }
    }
}

fn parse(written: &[u8]) -> HeaderName {
    let is_it = |name: &&HeaderName| name.as_str().as_bytes().eq_ignore_ascii_case(written);
    let parse = || HeaderName::from_bytes(written).expect("the parser lets only tokens pass");
    STEADY.iter().find(is_it).cloned().unwrap_or_else(parse)
}

/// Length and last letters tell the usual names apart well enough.
fn place(written: &[u8]) -> usize {
    let last = written.iter().rev().take(3).fold(0, |sum, &b| sum * 37 + usize::from(b | 0x20));
    (written.len() * 7 + last) % PLACES
}
