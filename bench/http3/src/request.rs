//! Requests that differ in query, cookie and referrer, as the requests of browsers do.

use weft_proto::http3::frame::{self, kind};

/// The HEADERS frame of a request, with the places of its number.
pub struct RequestTemplate {
    frame: Vec<u8>,
    places: Vec<usize>,
    number: u64,
}

/// Number of digits in which requests differ.
const DIGITS: usize = 8;

const PLACEHOLDER: &str = "########";

/// Indices of the static table of QPACK (RFC 9204 appendix A).
const AUTHORITY: u8 = 0;
const PATH: u8 = 1;
const COOKIE: u8 = 5;
const REFERER: u8 = 13;
const METHOD_GET: u8 = 17;
const SCHEME_HTTPS: u8 = 23;
const ACCEPT_ANY: u8 = 29;
const USER_AGENT: u8 = 95;

impl RequestTemplate {
    /// Prepares requests for a path. The numbers begin with `first`.
    pub fn new(authority: &str, path: &str, first: u64) -> RequestTemplate {
        let mut section = vec![0, 0];
        section.extend([METHOD_GET, SCHEME_HTTPS].map(|index| 0xc0 | index));
        named(&mut section, AUTHORITY, authority);
        named(&mut section, PATH, &format!("{path}?n={PLACEHOLDER}"));
        section.push(0xc0 | ACCEPT_ANY);
        named(&mut section, USER_AGENT, "weft-bench-http3");
        named(&mut section, COOKIE, &format!("session={PLACEHOLDER}"));
        named(&mut section, REFERER, &format!("https://{authority}/from/{PLACEHOLDER}"));
        let mut frame = Vec::new();
        frame::head(&mut frame, kind::HEADERS, section.len() as u64);
        frame.extend_from_slice(&section);
        let windows = frame.windows(DIGITS).enumerate();
        let places = windows
            .filter(|(_, window)| *window == PLACEHOLDER.as_bytes())
            .map(|(place, _)| place)
            .collect();
        RequestTemplate { frame, places, number: first }
    }

    /// Returns the frame of the next request.
    pub fn next(&mut self) -> &[u8] {
        self.number += 1;
        let (mut digits, mut rest) = ([b'0'; DIGITS], self.number);
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        for &place in &self.places {
            self.frame[place..place + DIGITS].copy_from_slice(&digits);
        }
        &self.frame
    }
}

/// Appends a field with a name of the static table, and a literal value (RFC 9204 §4.5.4).
fn named(section: &mut Vec<u8>, index: u8, value: &str) {
    match index.checked_sub(15) {
        None => section.push(0x50 | index),
        Some(rest) => section.extend_from_slice(&[0x5f, rest]),
    }
    // One byte for the length suffices: the values are short.
    assert!(value.len() < 127, "the value {value:?} is too long");
    section.push(value.len() as u8);
    section.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use weft_proto::http3::qpack::Decoder;

    use super::*;

    fn fields(frame: &[u8]) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (head, length) = frame::FrameHead::read(frame).unwrap();
        assert_eq!((head.kind, head.length as usize), (kind::HEADERS, frame.len() - length));
        let mut fields = Vec::new();
        let push = |field: weft_proto::http3::qpack::Field<'_>| {
            fields.push((text(field.name), text(field.value)));
            true
        };
        Decoder::default().decode(0, &frame[length..], push).unwrap();
        fields
    }

    #[test]
    fn requests_differ_in_three_fields() {
        let mut template = RequestTemplate::new("localhost", "/a", 41);
        let first = fields(template.next());
        let second = fields(template.next());
        // Pseudo-header fields come first (RFC 9114 §4.3).
        assert!(first.iter().is_sorted_by_key(|(name, _)| !name.starts_with(':')));
        let value = |fields: &[(String, String)], name: &str| {
            fields.iter().find(|field| field.0 == name).unwrap().1.clone()
        };
        assert_eq!(value(&first, ":method"), "GET");
        assert_eq!(value(&first, ":scheme"), "https");
        assert_eq!(value(&first, ":authority"), "localhost");
        assert_eq!(value(&first, ":path"), "/a?n=00000042");
        assert_eq!(value(&first, "cookie"), "session=00000042");
        assert_eq!(value(&second, "referer"), "https://localhost/from/00000043");
        let differing = first.iter().zip(&second).filter(|(first, second)| first != second);
        assert_eq!(differing.count(), 3);
    }
}
