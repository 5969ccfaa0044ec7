//! Repetitions of an earlier head, which are compared instead of parsed.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http::{Method, Version};

use super::{Field, Fields, KnownFields, Occurrence, ParsedHead, Span};
use crate::headers::NameSketch;
use crate::http1::framing::{self, RequestFraming, is_plain_authority};
use crate::http1::parse::Limits;

/// An earlier head. Many clients send the same head again and again, and most the same fields, like the
/// entries of a dynamic table in HTTP/2: one comparison replaces parsing them.
///
/// It may be the head of another connection. So only a head is kept that has no query, and whose fields are
/// the same for many clients: the time of a comparison must not depend on a secret.
#[derive(Debug, Default)]
pub(super) struct KeptHead {
    /// Its bytes, with the empty line.
    text: Bytes,
    /// Start of its field section.
    section: u16,
    method: Method,
    target: Span,
    version: Version,
    fields: Fields,
    known: KnownFields,
    has_plain_host: bool,
    name_sketch: NameSketch,
    /// Its framing, if it is valid.
    framing: Option<RequestFraming>,
    id: Option<HeadId>,
}

/// Identifies a head to which later ones are compared. All heads with the same identifier are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadId(NonZeroU64);

impl HeadId {
    /// Creates an identifier that no other parser of the process has.
    fn next() -> Option<HeadId> {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        NonZeroU64::new(COUNT.fetch_add(1, Relaxed)).map(HeadId)
    }

    /// Returns one of `count` slots of a cache.
    pub fn slot(self, count: usize) -> usize {
        (self.0.get() % count as u64) as usize
    }
}

/// The part of a head that is that of the kept one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repetition {
    None,
    Section,
    Head,
}

/// Keeping a head takes about as long as parsing two fields. So of the heads of clients that never send
/// the same one, one in 16 is kept.
const KEEP_ONE_IN: u8 = 16;

/// The first head of a parser that is kept: many connections have one request only.
pub(super) const FIRST_KEPT: u8 = 2;

/// Longer heads are not kept. That of a browser has 800 bytes.
const MAX_KEPT_BYTES: usize = 2 << 10;

/// Names of fields without secrets.
const PUBLIC_NAMES: [&[u8]; 25] = [
    b"accept",
    b"accept-encoding",
    b"accept-language",
    b"cache-control",
    b"connection",
    b"content-length",
    b"content-type",
    b"dnt",
    b"expect",
    b"host",
    b"pragma",
    b"priority",
    b"sec-ch-ua",
    b"sec-ch-ua-mobile",
    b"sec-ch-ua-platform",
    b"sec-fetch-dest",
    b"sec-fetch-mode",
    b"sec-fetch-site",
    b"sec-fetch-user",
    b"sec-gpc",
    b"te",
    b"transfer-encoding",
    b"upgrade-insecure-requests",
    b"user-agent",
    b"x-requested-with",
];

fn is_public(name: &[u8]) -> bool {
    PUBLIC_NAMES.iter().any(|public| name.eq_ignore_ascii_case(public))
}

impl ParsedHead {
    /// Returns the identifier and the text of the kept head, if the head is a repetition of it.
    #[inline]
    pub fn repeated(&self) -> Option<(HeadId, &Bytes)> {
        let kept = self.kept.as_ref().filter(|_| self.repetition == Repetition::Head)?;
        Some((kept.id?, &kept.text))
    }

    /// Discards the parts of a repeated head, which stay until a different head is read.
    #[inline]
    pub(super) fn forget_repetition(&mut self) {
        if self.repetition != Repetition::None {
            self.clear_parts();
        }
    }

    /// Moves the fields of the head to `fields`, which the parser gets for reuse.
    pub(crate) fn take_fields(&mut self, fields: &mut Fields) {
        std::mem::swap(fields, &mut self.fields);
        self.repetition = Repetition::None;
    }

    /// Returns the framing of the head, if the head is a repetition.
    pub(in crate::http1) fn kept_framing(&self) -> Option<RequestFraming> {
        self.kept.as_ref().filter(|_| self.repetition == Repetition::Head)?.framing
    }

    /// Returns true if the value of `Host` is known to be a plain authority.
    pub(in crate::http1) fn has_plain_host(&self) -> bool {
        self.repetition != Repetition::None
            && self.kept.as_ref().is_some_and(|kept| kept.has_plain_host)
    }

    /// If the head is the kept one, copies its parts, unless they are those of the last head, too.
    /// Returns its length.
    #[inline]
    pub(super) fn repeat_head(&mut self, input: &[u8], limits: &Limits) -> Option<usize> {
        let kept = self.kept.as_ref()?;
        let section = usize::from(kept.section);
        if !input.starts_with(&kept.text)
            || section > limits.request_line + b"\r\n".len()
            || !kept.fits(kept.text.len(), limits)
        {
            return None;
        }
        if self.repetition == Repetition::Head {
            return Some(kept.text.len());
        }
        self.method.clone_from(&kept.method);
        self.target = kept.target;
        self.version = kept.version;
        let length = kept.text.len();
        self.repeat_fields(section);
        self.repetition = Repetition::Head;
        Some(length)
    }

    /// If the section at `start` is that of the kept head, copies its fields, and returns the length
    /// of the head.
    #[inline]
    pub(super) fn repeat_section(
        &mut self,
        input: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Option<usize> {
        let kept = self.kept.as_ref()?;
        let section = &kept.text[usize::from(kept.section)..];
        let length = start + section.len();
        if !input[start..].starts_with(section) || !kept.fits(length, limits) {
            return None;
        }
        self.repeat_fields(start);
        self.repetition = Repetition::Section;
        Some(length)
    }

    /// Copies the fields of the kept head, for a head with the same section at `start`.
    #[inline]
    fn repeat_fields(&mut self, start: usize) {
        let Some(kept) = &self.kept else { return };
        let shift = (start as u16).wrapping_sub(kept.section);
        self.fields.extend(kept.fields.iter().map(|field| field.shifted(shift)));
        self.known = kept.known;
        if shift != 0 {
            self.known.shift(shift);
        }
        self.name_sketch = kept.name_sketch;
    }

    /// Counts a head that was parsed, and keeps it if it is its turn.
    #[inline]
    pub(super) fn record_head(&mut self, input: &[u8], length: usize) {
        self.until_kept -= 1;
        if self.until_kept == 0 {
            self.until_kept = KEEP_ONE_IN;
            self.keep(&input[..length]);
        }
    }

    /// Keeps the head if it is suitable.
    #[cold]
    fn keep(&mut self, head: &[u8]) {
        let has_query = self.target.of(head).contains(&b'?');
        if head.len() > MAX_KEPT_BYTES
            || has_query
            || !self.fields.iter().all(|field| is_public(field.name.of(head)))
        {
            return;
        }
        let section = self.fields.first().map_or(head.len() - 2, |field| field.name.start());
        let framing = framing::request(self, head).ok();
        let kept = self.kept.get_or_insert_default();
        kept.text = Bytes::copy_from_slice(head);
        kept.section = section as u16;
        kept.method.clone_from(&self.method);
        kept.target = self.target;
        kept.version = self.version;
        kept.fields.clear();
        kept.fields.extend_from_slice(&self.fields);
        kept.known = self.known;
        kept.name_sketch = self.name_sketch;
        kept.framing = framing;
        kept.id = HeadId::next();
        kept.has_plain_host =
            matches!(self.known.host, Occurrence::Once(host) if is_plain_authority(host, head));
    }
}

impl KeptHead {
    /// Returns true if a head with this length and the same fields is within the limits.
    fn fits(&self, length: usize, limits: &Limits) -> bool {
        length <= limits.head && self.fields.len() <= limits.fields
    }
}

impl Span {
    /// Moves the range by a number of bytes, modulo 2^16.
    fn shifted(self, by: u16) -> Span {
        Span { start: self.start.wrapping_add(by), end: self.end.wrapping_add(by) }
    }
}

impl Field {
    fn shifted(self, by: u16) -> Field {
        Field { name: self.name.shifted(by), value: self.value.shifted(by) }
    }
}

impl KnownFields {
    /// Moves all positions.
    fn shift(&mut self, by: u16) {
        let KnownFields { host, content_length, transfer_encoding, connection, expect } = self;
        for known in [host, content_length, transfer_encoding, connection, expect] {
            if let Occurrence::Once(value) = known {
                *value = value.shifted(by);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;

    const LIMITS: Limits = Limits { request_line: 100, head: 300, fields: 3 };

    /// The parts of a head, and its framing, or the error.
    fn parts(parsed: &ParsedHead, head: &[u8], read: Result<Option<usize>>) -> String {
        let Ok(Some(length)) = read else { return format!("{read:?}") };
        let fields: Vec<_> =
            parsed.fields.iter().map(|it| (it.name.of(head), it.value.of(head))).collect();
        let (method, target) = (&parsed.method, parsed.target.of(head));
        let framing = framing::request(parsed, &head[..length]);
        let (version, names) = (parsed.version, parsed.name_sketch);
        format!("{length} {method} {target:?} {version:?} {fields:?} {framing:?} {names:?}")
    }

    #[test]
    fn kept_head_changes_no_result() {
        let lines = [
            "GET / HTTP/1.1\r\n",
            "GET /longer?a=b HTTP/1.1\r\n",
            "POST / HTTP/1.1\r\n",
            "GET / HTTP/1.0\r\n",
            "GET / HTTP/1.\r\n",
            "GET http://b/ HTTP/1.1\r\n",
            "\r\nGET / HTTP/1.1\r\n",
        ];
        let sections = [
            "Host: a\r\n\r\n",
            "Host: a\r\n\r\nGET",
            "Host: a\r\nAccept: b\r\n\r\n",
            "Host: a\r\nAccept: b\r\nTE: c\r\n\r\n",
            "Host: a\r\nAccept: b\r\nTE: c\r\nTE: d\r\n\r\n",
            "Host: a\r\nAccept: b\r\n",
            "Host: a!\r\nContent-Length: 12\r\nConnection: close\r\n\r\n",
            "Host: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
            "Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "Host: a\r\nHost: a\r\n\r\n",
            "Host: /\r\n\r\n",
            "Host : a\r\n\r\n",
            "\r\n",
        ];
        let heads: Vec<String> = lines
            .iter()
            .flat_map(|line| sections.iter().map(move |section| format!("{line}{section}")))
            .collect();
        let short = Limits { head: 40, ..LIMITS };
        let short_line = Limits { request_line: 14, ..LIMITS };
        let few = Limits { fields: 1, ..LIMITS };
        for (kept, head) in heads.iter().flat_map(|kept| heads.iter().map(move |head| (kept, head)))
        {
            let (kept, head) = (kept.as_bytes(), head.as_bytes());
            let mut parser = ParsedHead::new();
            for _ in 0..3 {
                parser.clear();
                let _ = parser.read(kept, &LIMITS);
            }
            for limits in [&LIMITS, &short, &short_line, &few] {
                for first in [head.len(), head.len() / 2] {
                    let mut fresh = ParsedHead::new();
                    parser.clear();
                    let results = [&mut parser, &mut fresh].map(|parser| {
                        let partial = parser.read(&head[..first], limits);
                        let read = match partial {
                            Ok(None) => parser.read(head, limits),
                            done => done,
                        };
                        parts(parser, head, read)
                    });
                    assert_eq!(results[0], results[1], "{:?} after {:?}", head, kept);
                }
            }
        }
    }

    #[test]
    fn identifies_a_kept_head() {
        let mut parsers = [ParsedHead::new(), ParsedHead::new()];
        let mut ids = Vec::new();
        for (index, head) in [(0, "a"), (0, "b"), (1, "a")] {
            let text = format!("GET /{head} HTTP/1.1\r\nHost: c\r\n\r\n");
            let parser = &mut parsers[index];
            let mut found: Vec<_> = (0..2 * KEEP_ONE_IN)
                .filter_map(|_| {
                    parser.clear();
                    parser.read(text.as_bytes(), &LIMITS).unwrap();
                    let (id, kept) = parser.repeated()?;
                    assert_eq!(kept, text.as_bytes());
                    Some(id)
                })
                .collect();
            found.dedup();
            assert_eq!(found.len(), 1);
            assert!(!ids.contains(&found[0]), "the identifier of another head");
            ids.append(&mut found);
        }
        parsers[0].take_fields(&mut Fields::new());
        assert_eq!(parsers[0].repeated(), None);
    }

    #[test]
    fn keeps_heads_that_are_repeated() {
        let mut parser = ParsedHead::new();
        let mut is_repeated = |head: &str| {
            parser.clear();
            parser.read(head.as_bytes(), &Limits { head: 3_000, ..LIMITS }).unwrap().unwrap();
            parser.repetition == Repetition::Head
        };
        let (head, other) =
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!([head; 4].map(&mut is_repeated), [false, false, true, true]);
        assert_eq!([other, head].map(&mut is_repeated), [false, true]);
        // Another head takes its place at last.
        assert!((0..KEEP_ONE_IN).any(|_| is_repeated(other)));
        assert!(!is_repeated(head));
        let long =
            format!("GET / HTTP/1.1\r\nHost: a\r\nTE: {}\r\n\r\n", "x".repeat(MAX_KEPT_BYTES));
        assert!((0..2 * KEEP_ONE_IN).all(|_| !is_repeated(&long)));
        assert!(is_repeated(other));
        let query = "GET /?b HTTP/1.1\r\nHost: a\r\n\r\n";
        for secret in [query, "GET / HTTP/1.1\r\nHost: a\r\nCookie: b\r\n\r\n"] {
            assert!((0..2 * KEEP_ONE_IN).all(|_| !is_repeated(secret)));
            assert!(is_repeated(other));
        }
    }
}
