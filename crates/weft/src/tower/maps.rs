//! Cache of header maps.
//!
//! Clients send the same few lists of field names repeatedly. Building a `HeaderMap` hashes each
//! name; cloning a cached map with the same names and replacing the values does not. Most values
//! repeat as well; they are cloned with the map, without being validated again.

use std::cell::RefCell;

use bytes::Bytes;
use http::header::MaxSizeReached;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue};

use crate::tower::names::{HeaderNameCache, is_stable};
use weft_proto::headers::Headers;

/// Number of cached maps: the browsers of a site send several dozen lists of names.
const SLOTS: usize = 64;

/// Longer lists are rare and not cached.
const MAX_FIELDS: usize = 32;
const MAX_NAMES_BYTES: usize = 1024;

/// Longer values are not cached.
const MAX_VALUE_BYTES: usize = 192;

/// Caching a map takes longer than building it. So only one map in 16 is cached if a client never
/// sends the same list twice, or if lists share a slot.
const INSERT_ONE_IN: u32 = 16;

/// One map per slot.
#[derive(Clone)]
pub(crate) struct HeaderMapCache {
    names: HeaderNameCache,
    /// Maps by the names of their fields.
    slots: RefCell<Vec<Slot>>,
    /// No extensions, with space for some.
    extensions: Extensions,
}

#[derive(Clone, Default)]
struct Slot {
    cached: Option<CachedMap>,
    /// Number of maps built for this slot.
    built: u32,
}

#[derive(Clone)]
struct CachedMap {
    /// Names as received, each followed by a colon.
    raw: Box<[u8]>,
    /// Map with the first values of stable fields; other values are empty.
    map: HeaderMap,
}

impl HeaderMapCache {
    pub(crate) fn new() -> HeaderMapCache {
        HeaderMapCache {
            names: HeaderNameCache::new(),
            slots: RefCell::new(vec![Slot::default(); SLOTS]),
            extensions: empty_extensions(),
        }
    }

    /// Returns empty extensions with space for the extensions that Weft and a router of axum
    /// insert: a clone of a map with space costs less than a map that grows.
    pub(super) fn extensions(&self) -> Extensions {
        self.extensions.clone()
    }

    /// Returns all fields, in order. The values are slices of the head, or cached.
    ///
    /// # Errors
    /// If there are more fields than a map can hold.
    pub(super) fn get(&self, headers: &Headers) -> Result<HeaderMap, MaxSizeReached> {
        let slot = &mut self.slots.borrow_mut()[slot_index(headers)];
        if let Some(cached) = slot.cached.as_ref().filter(|cached| cached.has_names(headers)) {
            return Ok(cached.with_values(headers));
        }
        let map = self.build(headers)?;
        if slot.built.is_multiple_of(INSERT_ONE_IN) {
            slot.cached = CachedMap::new(headers, &map).or(slot.cached.take());
        }
        slot.built = slot.built.wrapping_add(1);
        Ok(map)
    }

    fn build(&self, headers: &Headers) -> Result<HeaderMap, MaxSizeReached> {
        let mut map = HeaderMap::try_with_capacity(headers.len())?;
        for (name, bytes) in headers.iter_shared() {
            map.try_append(self.names.get(name), value(bytes))?;
        }
        Ok(map)
    }
}

impl CachedMap {
    /// Creates a cache entry for a map. A map is not cached if its names are not in the order of
    /// the fields, for example if a name is repeated: values are replaced by position.
    fn new(headers: &Headers, map: &HeaderMap) -> Option<CachedMap> {
        let is_same =
            |(name, raw): (&HeaderName, &[u8])| name.as_str().as_bytes().eq_ignore_ascii_case(raw);
        let is_in_order =
            map.keys_len() == headers.len() && map.keys().zip(headers.names()).all(is_same);
        let mut raw = Vec::new();
        for name in headers.names() {
            raw.extend_from_slice(name);
            raw.push(b':');
        }
        let is_small = headers.len() <= MAX_FIELDS && raw.len() <= MAX_NAMES_BYTES;
        (is_small && is_in_order).then(|| {
            let mut map = map.clone();
            for (name, value) in &mut map {
                let is_cacheable = is_stable(name) && value.len() <= MAX_VALUE_BYTES;
                // A copy, so that the cache does not keep the head in memory.
                let bytes = if is_cacheable { value.as_bytes() } else { b"" };
                *value = self::value(Bytes::copy_from_slice(bytes));
            }
            CachedMap { raw: raw.into(), map }
        })
    }

    fn has_names(&self, headers: &Headers) -> bool {
        let rest = headers
            .names()
            .try_fold(&*self.raw, |rest, name| rest.strip_prefix(name)?.strip_prefix(b":"));
        rest.is_some_and(<[u8]>::is_empty)
    }

    fn with_values(&self, headers: &Headers) -> HeaderMap {
        let mut map = self.map.clone();
        for (cached, (_, sent)) in map.values_mut().zip(headers.iter_bytes()) {
            if *cached != *sent {
                *cached = value(headers.text().slice_ref(sent));
            }
        }
        map
    }
}

fn empty_extensions() -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(0_u8);
    extensions.insert(0_u16);
    extensions.insert(0_u32);
    extensions.insert(0_u64);
    extensions.clear();
    extensions
}

fn value(bytes: Bytes) -> HeaderValue {
    HeaderValue::from_maybe_shared(bytes).expect("the parser rejects control characters")
}

/// Lengths and last letters distinguish the usual lists of names well enough.
fn slot_index(headers: &Headers) -> usize {
    let add = |sum: usize, name: &[u8]| {
        let last = name.last().copied().map_or(0, usize::from);
        sum.wrapping_mul(31).wrapping_add(name.len() * 7 + last)
    };
    headers.names().fold(0, add) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    fn headers(lines: &[&str]) -> Headers {
        request(format!("GET / HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n"))).headers().clone()
    }

    /// The fields of a map, in its order.
    fn fields(map: &HeaderMap) -> Vec<(&str, &[u8])> {
        map.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
    }

    #[test]
    fn cached_map_equals_a_built_map() {
        let long = format!("User-Agent: {}", "a".repeat(MAX_VALUE_BYTES + 1));
        let lists: &[&[&str]] = &[
            &["Host: a"],
            &["Host: a", "User-Agent: a", "Accept: */*", "Cookie: a=1", "Sec-Fetch-Mode: cors"],
            &["Host: b", "User-Agent: b", "Accept: ", "Cookie: b=2", "Sec-Fetch-Mode: navigate"],
            // These share a slot, because they have the same lengths and last letters.
            &["Host: a", "X-Ab: 1", "X-Bb: 2"],
            &["Host: a", "X-Bb: 1", "X-Ab: 2"],
            &["Host: a", "Accept: 1", "Via: 2", "accept: 3"],
            &["host: a", "user-agent: a", "accept: */*", "cookie: a=1", "sec-fetch-mode: cors"],
            &["Host: a", &long],
        ];
        let maps = HeaderMapCache::new();
        for list in [lists; INSERT_ONE_IN as usize + 2].concat() {
            let headers = headers(list);
            let mut map = maps.get(&headers).unwrap();
            assert_eq!(
                fields(&map),
                fields(&HeaderMapCache::new().get(&headers).unwrap()),
                "{list:?}"
            );
            for name in headers.names() {
                assert!(map.contains_key(std::str::from_utf8(name).unwrap()), "{list:?}");
            }
            map.append("x-more", HeaderValue::from_static("1"));
            assert_eq!(map["x-more"], "1");
        }
    }

    #[test]
    fn entry_matches_only_the_same_list_of_names() {
        let entry = |list: &[&str]| {
            let headers = headers(list);
            CachedMap::new(&headers, &HeaderMapCache::new().get(&headers).unwrap())
        };
        let cached = entry(&["Host: a", "X: 1", "Y: 2"]).unwrap();
        for (list, expected) in [
            (&["Host: b", "X: ", "Y: 3"][..], true),
            (&["Host: a", "X: 1"], false),
            (&["Host: a", "X: 1", "Y: 2", "Z: 3"], false),
            (&["Host: a", "Y: 2", "X: 1"], false),
            (&["Host: a", "X: 1", "Ya: 2"], false),
            (&["Host: a", "x: 1", "Y: 2"], false),
        ] {
            assert_eq!(cached.has_names(&headers(list)), expected, "{list:?}");
        }
        assert!(entry(&["Host: a", "X: 1", "x: 2"]).is_none());
        let many: Vec<_> = (0..MAX_FIELDS).map(|n| format!("X-{n}: 1")).collect();
        let mut many: Vec<_> = many.iter().map(String::as_str).collect();
        many[0] = "Host: a";
        assert!(entry(&many).is_some());
        many.push("Y: 1");
        assert!(entry(&many).is_none());
    }

    #[test]
    fn does_not_cache_secret_values() {
        let maps = HeaderMapCache::new();
        let headers = headers(&["Host: a", "Cookie: b", "Authorization: c", "X-Token: d"]);
        maps.get(&headers).unwrap();
        let slots = maps.slots.borrow();
        let cached: Vec<_> = slots
            .iter()
            .filter_map(|slot| slot.cached.as_ref())
            .flat_map(|cached| fields(&cached.map))
            .collect();
        let expected: [(_, &[u8]); 4] =
            [("host", b"a"), ("cookie", b""), ("authorization", b""), ("x-token", b"")];
        assert_eq!(cached, expected);
    }
}
