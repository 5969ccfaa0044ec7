//! Header maps whose names were seen before.
//!
//! Clients send the same few lists of names again and again. Building a `HeaderMap` takes a hash
//! of each name; copying one that has the names, and putting the values in, takes none. Most
//! values are the same again, too; those are copied with it, without being checked again.

use std::cell::RefCell;

use bytes::Bytes;
use http::header::MaxSizeReached;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::proto::headers::Headers;
use crate::tower::names::{Names, is_steady};

/// How many maps are kept: a site's browsers send some dozen lists of names.
const PLACES: usize = 64;

/// Longer lists are rare, and not worth keeping.
const MOST_FIELDS: usize = 32;
const MOST_BYTES: usize = 1024;

/// Nor are longer values.
const LONGEST_VALUE: usize = 192;

/// To keep a map takes longer than to build it. So whoever never sends the same list twice, or
/// shares a place with another, has only one of so many kept.
const ONE_IN: u32 = 16;

/// A map for each place.
#[derive(Clone)]
pub(super) struct Maps {
    names: Names,
    places: RefCell<Vec<Place>>,
}

#[derive(Clone, Default)]
struct Place {
    seen: Option<Seen>,
    /// How many maps were built here.
    built: u32,
}

#[derive(Clone)]
struct Seen {
    /// The names as they were written, each with a colon behind it.
    written: Box<[u8]>,
    /// With the values of steady fields, as they were first seen, and other values empty.
    map: HeaderMap,
}

impl Maps {
    pub(super) fn new() -> Maps {
        Maps { names: Names::new(), places: RefCell::new(vec![Place::default(); PLACES]) }
    }

    /// All fields, in order. The values are parts of the head's bytes, or were kept.
    ///
    /// # Errors
    /// If there are more than a map holds.
    pub(super) fn get(&self, headers: &Headers) -> Result<HeaderMap, MaxSizeReached> {
        let place = &mut self.places.borrow_mut()[place(headers)];
        if let Some(seen) = place.seen.as_ref().filter(|seen| seen.has_names(headers)) {
            return Ok(seen.with_values(headers));
        }
        let map = self.build(headers)?;
        if place.built.is_multiple_of(ONE_IN) {
            place.seen = Seen::new(headers, &map).or(place.seen.take());
        }
        place.built = place.built.wrapping_add(1);
        Ok(map)
    }

    fn build(&self, headers: &Headers) -> Result<HeaderMap, MaxSizeReached> {
        let mut map = HeaderMap::try_with_capacity(headers.len())?;
        for (name, bytes) in headers.shared() {
            map.try_append(self.names.get(name), value(bytes))?;
        }
        Ok(map)
    }
}

impl Seen {
    /// What is kept of a map. One whose names are not in the order of the fields is not kept, as
    /// when a name is repeated: values are put in by their places.
    fn new(headers: &Headers, map: &HeaderMap) -> Option<Seen> {
        let written_so = |(name, written): (&HeaderName, &[u8])| {
            name.as_str().as_bytes().eq_ignore_ascii_case(written)
        };
        let is_in_order =
            map.keys_len() == headers.len() && map.keys().zip(headers.names()).all(written_so);
        let mut written = Vec::new();
        for name in headers.names() {
            written.extend_from_slice(name);
            written.push(b':');
        }
        let is_small = headers.len() <= MOST_FIELDS && written.len() <= MOST_BYTES;
        (is_small && is_in_order).then(|| {
            let mut map = map.clone();
            for (name, value) in &mut map {
                let is_kept = is_steady(name) && value.len() <= LONGEST_VALUE;
                // A copy, so that the head does not live as long as this.
                let kept = if is_kept { value.as_bytes() } else { b"" };
                *value = self::value(Bytes::copy_from_slice(kept));
            }
            Seen { written: written.into(), map }
        })
    }

    fn has_names(&self, headers: &Headers) -> bool {
        let rest = headers
            .names()
            .try_fold(&*self.written, |rest, name| rest.strip_prefix(name)?.strip_prefix(b":"));
        rest.is_some_and(<[u8]>::is_empty)
    }

    fn with_values(&self, headers: &Headers) -> HeaderMap {
        let mut map = self.map.clone();
        for (kept, (_, sent)) in map.values_mut().zip(headers.iter_bytes()) {
            if *kept != *sent {
                *kept = value(headers.text().slice_ref(sent));
            }
        }
        map
    }
}

fn value(bytes: Bytes) -> HeaderValue {
    HeaderValue::from_maybe_shared(bytes).expect("the parser lets no controls pass")
}

/// Lengths and last letters tell the usual lists of names apart well enough.
fn place(headers: &Headers) -> usize {
    let add = |sum: usize, name: &[u8]| {
        let last = name.last().copied().map_or(0, usize::from);
        sum.wrapping_mul(31).wrapping_add(name.len() * 7 + last)
    };
    headers.names().fold(0, add) % PLACES
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
    fn a_copy_is_like_a_map_that_was_built() {
        let long = format!("User-Agent: {}", "a".repeat(LONGEST_VALUE + 1));
        let lists: &[&[&str]] = &[
            &["Host: a"],
            &["Host: a", "User-Agent: a", "Accept: */*", "Cookie: a=1", "Sec-Fetch-Mode: cors"],
            &["Host: b", "User-Agent: b", "Accept: ", "Cookie: b=2", "Sec-Fetch-Mode: navigate"],
            // The same place for these, for they have the same lengths and last letters.
            &["Host: a", "X-Ab: 1", "X-Bb: 2"],
            &["Host: a", "X-Bb: 1", "X-Ab: 2"],
            &["Host: a", "Accept: 1", "Via: 2", "accept: 3"],
            &["host: a", "user-agent: a", "accept: */*", "cookie: a=1", "sec-fetch-mode: cors"],
            &["Host: a", &long],
        ];
        let maps = Maps::new();
        for list in [lists; ONE_IN as usize + 2].concat() {
            let headers = headers(list);
            let mut map = maps.get(&headers).unwrap();
            assert_eq!(fields(&map), fields(&Maps::new().get(&headers).unwrap()), "{list:?}");
            for name in headers.names() {
                assert!(map.contains_key(std::str::from_utf8(name).unwrap()), "{list:?}");
            }
            map.append("x-more", HeaderValue::from_static("1"));
            assert_eq!(map["x-more"], "1");
        }
    }

    #[test]
    fn only_all_of_its_names_are_its_names() {
        let seen = |list: &[&str]| {
            let headers = headers(list);
            Seen::new(&headers, &Maps::new().get(&headers).unwrap())
        };
        let known = seen(&["Host: a", "X: 1", "Y: 2"]).unwrap();
        for (list, expected) in [
            (&["Host: b", "X: ", "Y: 3"][..], true),
            (&["Host: a", "X: 1"], false),
            (&["Host: a", "X: 1", "Y: 2", "Z: 3"], false),
            (&["Host: a", "Y: 2", "X: 1"], false),
            (&["Host: a", "X: 1", "Ya: 2"], false),
            (&["Host: a", "x: 1", "Y: 2"], false),
        ] {
            assert_eq!(known.has_names(&headers(list)), expected, "{list:?}");
        }
        assert!(seen(&["Host: a", "X: 1", "x: 2"]).is_none());
        let many: Vec<_> = (0..MOST_FIELDS).map(|n| format!("X-{n}: 1")).collect();
        let mut many: Vec<_> = many.iter().map(String::as_str).collect();
        many[0] = "Host: a";
        assert!(seen(&many).is_some());
        many.push("Y: 1");
        assert!(seen(&many).is_none());
    }

    #[test]
    fn nothing_secret_is_kept() {
        let maps = Maps::new();
        let headers = headers(&["Host: a", "Cookie: b", "Authorization: c", "X-Token: d"]);
        maps.get(&headers).unwrap();
        let places = maps.places.borrow();
        let kept: Vec<_> = places
            .iter()
            .filter_map(|place| place.seen.as_ref())
            .flat_map(|seen| fields(&seen.map))
            .collect();
        let expected: [(_, &[u8]); 4] =
            [("host", b"a"), ("cookie", b""), ("authorization", b""), ("x-token", b"")];
        assert_eq!(kept, expected);
    }
}
