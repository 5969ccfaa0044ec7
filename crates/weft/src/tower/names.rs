//! Cache of field names.
//!
//! Clients send the same few names repeatedly. Creating a `HeaderName` requires a lookup among the
//! registered names, and an allocation for any other name; a cache hit requires only a comparison.

use std::cell::RefCell;

use http::{HeaderName, header};

/// Number of cache slots: more than the number of names that a client sends.
const SLOTS: usize = 64;

/// Longer names are rare and not cached.
const MAX_NAME_BYTES: usize = 64;

/// Fields whose values repeat from request to request and are not secret. Unregistered names are
/// listed also because cloning a static name counts no references.
static STABLE_FIELDS: [HeaderName; 24] = [
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

pub(super) fn is_stable(name: &HeaderName) -> bool {
    STABLE_FIELDS.contains(name)
}

/// The most recent name in each slot.
#[derive(Clone)]
pub(super) struct HeaderNameCache(RefCell<Vec<Option<CachedName>>>);

#[derive(Clone)]
struct CachedName {
    raw: Box<[u8]>,
    name: HeaderName,
}

impl HeaderNameCache {
    pub(super) fn new() -> HeaderNameCache {
        HeaderNameCache(RefCell::new(vec![None; SLOTS]))
    }

    /// Returns the name spelled `raw`.
    ///
    /// # Panics
    /// If `raw` is not a token.
    pub(super) fn get(&self, raw: &[u8]) -> HeaderName {
        let mut slots = self.0.borrow_mut();
        let slot = &mut slots[slot_index(raw)];
        match slot {
            Some(cached) if *cached.raw == *raw => cached.name.clone(),
            _ => {
                let name = parse(raw);
                if raw.len() <= MAX_NAME_BYTES {
                    *slot = Some(CachedName { raw: raw.into(), name: name.clone() });
                }
                name
            }
        }
    }
}

fn parse(raw: &[u8]) -> HeaderName {
    let matches = |name: &&HeaderName| name.as_str().as_bytes().eq_ignore_ascii_case(raw);
    let parse = || HeaderName::from_bytes(raw).expect("the parser lets only tokens pass");
    STABLE_FIELDS.iter().find(matches).cloned().unwrap_or_else(parse)
}

/// Length and last letters distinguish the usual names well enough.
fn slot_index(raw: &[u8]) -> usize {
    let last = raw.iter().rev().take(3).fold(0, |sum, &b| sum * 37 + usize::from(b | 0x20));
    (raw.len() * 7 + last) % SLOTS
}
