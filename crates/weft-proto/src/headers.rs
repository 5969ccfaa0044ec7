//! A list of header fields: slices of one buffer, looked up without hashing.

use std::fmt;

use bytes::Bytes;
use http::HeaderMap;

use crate::http1::parse::{self, Field, Fields, Limits, MAX_HEAD_BYTES, ParsedHead, Span};
use crate::list::list_members;
use crate::name_sketch::NameSketch;
use crate::names::is_same_name;
use crate::{Error, ErrorKind, Result};

/// The fields of a head or of a trailer section, in the order received.
///
/// A head has about a dozen fields: comparing lengths, then bytes, is faster than hashing the name.
/// Most lookups find no field. The set of lengths and initials shows that at once. Names are
/// compared case-insensitively. A name is a text or a `HeaderName` of the crate `http`.
///
/// ```
/// use weft_proto::Headers;
///
/// let headers = Headers::parse("Host: a\r\nAccept: text/html\r\n\r\n")?;
/// assert_eq!(headers.get("accept"), Some("text/html"));
/// assert_eq!(headers.get(http::header::ACCEPT), Some("text/html"));
/// assert_eq!(headers.get("cookie"), None);
/// # Ok::<(), weft_proto::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Headers {
    text: Bytes,
    fields: Fields,
    names: NameSketch,
}

/// Limits for [`Headers::parse`].
const PARSE_LIMITS: Limits = Limits { request_line: 0, head: MAX_HEAD_BYTES, fields: 1_000 };

/// Maximum number of members that [`Headers::bounded_list`] returns. Browsers send up to 4 content
/// codings, 10 media types and 20 languages.
pub const MAX_LIST_MEMBERS: usize = 32;

/// Maximum number of bytes that [`Headers::bounded_list`] reads: 32 for each member.
pub const MAX_LIST_BYTES: usize = 1_024;

impl Headers {
    /// Parses field lines, each with its CRLF, up to an empty line (RFC 9112 §5). Bytes behind
    /// that are ignored. For tests, and for stored messages.
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) for invalid lines, a missing empty line, more than
    /// 65,535 bytes or more than 1,000 fields.
    pub fn parse(lines: impl Into<Bytes>) -> Result<Headers> {
        let text = lines.into();
        match parse::trailers(&text, &PARSE_LIMITS)? {
            Some((fields, _)) => Ok(Headers::new(text, fields)),
            None => Err(Error::malformed("the empty line behind the fields is missing")),
        }
    }

    /// Creates a list from a message and the positions of its fields, as
    /// [`ParsedHead`] and [`trailers`](parse::trailers) return them.
    ///
    /// The positions must be within `text`, and the names must be ASCII; otherwise this method
    /// panics, or the methods that read a field.
    pub fn new(text: Bytes, fields: Fields) -> Headers {
        let mut names = NameSketch::default();
        fields.iter().for_each(|field| names.insert(field.name.of(&text)));
        Headers { text, fields, names }
    }

    /// Creates a list as [`new`](Headers::new), with the names that the parser has recorded.
    #[inline]
    pub(crate) fn parsed(text: Bytes, fields: Fields, names: NameSketch) -> Headers {
        Headers { text, fields, names }
    }

    /// Replaces the contents by the fields of a head that was parsed from `text`. The parser gets
    /// the previous allocation of the field list for reuse.
    #[inline]
    pub fn replace(&mut self, text: Bytes, head: &mut ParsedHead) {
        self.text = text;
        self.names = head.name_sketch;
        std::mem::swap(&mut self.fields, &mut head.fields);
    }

    /// Releases the text and clears the field list, keeping its allocation.
    #[inline]
    pub fn clear(&mut self) {
        self.text = Bytes::new();
        self.fields.clear();
        self.names = NameSketch::default();
    }

    /// Returns the bytes that the fields are slices of: the whole message head if the list was
    /// received with one.
    #[inline]
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// Returns true if there is a field with this name.
    #[inline]
    pub fn contains(&self, name: impl AsRef<str>) -> bool {
        self.get_bytes(name).is_some()
    }

    /// Returns the value of the first field with this name, if it is UTF-8.
    #[inline]
    pub fn get(&self, name: impl AsRef<str>) -> Option<&str> {
        std::str::from_utf8(self.get_bytes(name)?).ok()
    }

    /// Returns the value of the first field with this name as raw bytes, without the white space
    /// around it.
    #[inline]
    pub fn get_bytes(&self, name: impl AsRef<str>) -> Option<&[u8]> {
        let name = name.as_ref();
        if self.names.may_contain(name.as_bytes()) { self.find(name) } else { None }
    }

    fn find(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|field| self.is_named(field, name))?;
        Some(found.value.of(&self.text))
    }

    /// Returns the values of all fields with this name, in order.
    #[inline]
    pub fn get_all<N: AsRef<str>>(&self, name: N) -> impl Iterator<Item = &[u8]> {
        let is_possible = self.names.may_contain(name.as_ref().as_bytes());
        let fields = if is_possible { &*self.fields } else { &[] };
        fields
            .iter()
            .filter(move |field| self.is_named(field, name.as_ref()))
            .map(|field| field.value.of(&self.text))
    }

    /// Compares the lengths first: most fields have other names, and few names have that length.
    #[inline]
    fn is_named(&self, field: &Field, name: &str) -> bool {
        field.name.len() == name.len() && is_same_name(field.name.of(&self.text), name.as_bytes())
    }

    /// Returns the members of all fields with this name, parsed as comma-separated lists
    /// (RFC 9110 §5.6.1). Empty members are omitted.
    #[inline]
    pub fn list<N: AsRef<str>>(&self, name: N) -> impl Iterator<Item = &[u8]> {
        self.get_all(name).flat_map(list_members)
    }

    /// Returns true if a field with this name lists `member`, without regard to case.
    ///
    /// ```
    /// use weft_proto::Headers;
    ///
    /// let headers = Headers::parse("Connection: close, Upgrade\r\n\r\n")?;
    /// assert!(headers.lists("connection", b"upgrade") && !headers.lists("te", b"upgrade"));
    /// # Ok::<(), weft_proto::Error>(())
    /// ```
    #[inline]
    pub fn lists(&self, name: impl AsRef<str>, member: &[u8]) -> bool {
        let name = name.as_ref();
        self.contains(name) && self.list(name).any(|it| it.eq_ignore_ascii_case(member))
    }

    /// Returns the members of all fields with this name like [`list`](Headers::list), within
    /// bounds: at most [`MAX_LIST_MEMBERS`], and only members that end within the first
    /// [`MAX_LIST_BYTES`] of the values together. The rest is neither returned nor read.
    ///
    /// For lists in which a missing member does no harm, such as preferences. A reference to the
    /// dynamic table of HPACK makes a field of many kilobytes from a few bytes on the wire, and so
    /// must not cost a scan of the whole field.
    pub fn bounded_list<N: AsRef<str>>(&self, name: N) -> impl Iterator<Item = &[u8]> {
        let mut remaining = MAX_LIST_BYTES;
        let lines = self.get_all(name).map(move |line| {
            let members = complete_members(line, remaining);
            // Lines are joined by commas (RFC 9110 §5.3).
            remaining = remaining.saturating_sub(line.len() + 1);
            members
        });
        lines.flat_map(list_members).take(MAX_LIST_MEMBERS)
    }

    /// Returns the names of all fields, in order.
    #[inline]
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().map(|field| field.name.of(&self.text))
    }

    /// Returns name and value of each field as bytes, in order. Slightly cheaper than
    /// [`iter`](Headers::iter).
    #[inline]
    pub fn iter_bytes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name.of(&self.text), field.value.of(&self.text)))
    }

    /// Returns name and value of each field, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|field| {
            let name = field.name.of(&self.text);
            let name =
                std::str::from_utf8(name).expect("field names are tokens and therefore ASCII");
            (name, field.value.of(&self.text))
        })
    }

    /// Returns name and value of each field, the value as a shared slice of the head.
    #[inline]
    pub fn iter_shared(&self) -> impl ExactSizeIterator<Item = (&[u8], Bytes)> {
        self.fields.iter().map(|field| {
            let value = field.value.of(&self.text);
            (field.name.of(&self.text), self.text.slice_ref(value))
        })
    }

    /// Returns the fields for which `predicate(name, value)` returns true, in order. Their bytes
    /// are shared, not copied.
    ///
    /// ```
    /// use weft_proto::Headers;
    ///
    /// let headers = Headers::parse("Host: a\r\nTE: b\r\n\r\n")?;
    /// let rest = headers.filter(|name, _| !name.eq_ignore_ascii_case(b"te"));
    /// assert_eq!((rest.len(), rest.get("host"), rest.get("te")), (1, Some("a"), None));
    /// # Ok::<(), weft_proto::Error>(())
    /// ```
    pub fn filter(&self, mut predicate: impl FnMut(&[u8], &[u8]) -> bool) -> Headers {
        let mut fields = Fields::new();
        for field in &self.fields {
            if predicate(field.name.of(&self.text), field.value.of(&self.text)) {
                fields.push(*field);
            }
        }
        Headers { text: self.text.clone(), fields, names: self.names }
    }

    /// Keeps only the fields for which `predicate(name, value)` returns true.
    ///
    /// ```
    /// use weft_proto::Headers;
    ///
    /// let mut headers = Headers::parse("Host: a\r\nTE: b\r\n\r\n")?;
    /// headers.retain(|name, _| !name.eq_ignore_ascii_case(b"te"));
    /// assert_eq!((headers.len(), headers.get("host"), headers.get("te")), (1, Some("a"), None));
    /// # Ok::<(), weft_proto::Error>(())
    /// ```
    pub fn retain(&mut self, mut predicate: impl FnMut(&[u8], &[u8]) -> bool) {
        let text = &self.text;
        self.fields.retain(|field| predicate(field.name.of(text), field.value.of(text)));
    }

    /// Removes all fields with this name, and copies none of the others.
    ///
    /// ```
    /// use weft_proto::Headers;
    ///
    /// let mut headers = Headers::parse("TE: a\r\nHost: b\r\nte: c\r\n\r\n")?;
    /// headers.remove("te");
    /// assert_eq!((headers.len(), headers.get("host")), (1, Some("b")));
    /// # Ok::<(), weft_proto::Error>(())
    /// ```
    pub fn remove(&mut self, name: impl AsRef<str>) {
        let name = name.as_ref();
        while let Some(at) = self.fields.iter().position(|field| self.is_named(field, name)) {
            self.fields.remove(at);
        }
    }

    /// Returns the number of fields.
    #[inline]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns true if there are no fields.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

/// Builder of [`Headers`] from parts, for heads that were not received as text.
///
/// ```
/// use weft_proto::headers::HeadersBuilder;
///
/// let mut head = HeadersBuilder::with_capacity(100)?;
/// let target = head.part(b"/index.html");
/// head.field(b"host", b"example.org");
/// assert_eq!(target.of(head.text()), b"/index.html");
/// assert_eq!(head.into_headers().get("host"), Some("example.org"));
/// # Ok::<(), weft_proto::Error>(())
/// ```
#[derive(Debug)]
pub struct HeadersBuilder {
    text: Vec<u8>,
    fields: Fields,
}

impl HeadersBuilder {
    /// Creates a builder with a capacity in bytes, which all parts and fields together must not
    /// exceed.
    ///
    /// # Errors
    /// [`HeadTooLarge`](ErrorKind::HeadTooLarge) if `bytes` exceeds [`MAX_HEAD_BYTES`].
    pub fn with_capacity(bytes: usize) -> Result<HeadersBuilder> {
        if bytes > MAX_HEAD_BYTES {
            return Err(Error::new(ErrorKind::HeadTooLarge, "the fields are too large"));
        }
        Ok(HeadersBuilder { text: Vec::with_capacity(bytes), fields: Fields::new() })
    }

    /// Adds bytes that are not a field, such as the request target. Returns their position.
    #[inline]
    pub fn part(&mut self, part: &[u8]) -> Span {
        let start = self.text.len();
        self.text.extend_from_slice(part);
        Span::new(start, self.text.len())
    }

    /// Adds a field. Its name must be a token (RFC 9110 §5.6.2).
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let (name, value) = (self.part(name), self.part(value));
        self.fields.push(Field { name, value });
    }

    /// Returns the bytes added so far.
    #[inline]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the fields, with all bytes added as their [`text`](Headers::text).
    pub fn into_headers(self) -> Headers {
        Headers::new(self.text.into(), self.fields)
    }
}

impl TryFrom<&HeaderMap> for Headers {
    type Error = Error;

    fn try_from(map: &HeaderMap) -> Result<Headers> {
        let mut lines = HeadersBuilder::with_capacity(text_len(map))?;
        for (name, value) in map {
            lines.field(name.as_str().as_bytes(), value.as_bytes());
        }
        Ok(lines.into_headers())
    }
}

/// Returns the total length of all names and values of a map.
pub fn text_len(map: &HeaderMap) -> usize {
    map.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Returns the part of a list with the members that end within its first `bytes` bytes.
fn complete_members(list: &[u8], bytes: usize) -> &[u8] {
    let Some(start) = list.get(..=bytes) else { return list };
    &start[..start.iter().rposition(|&b| b == b',').unwrap_or(0)]
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[String]) -> Headers {
        Headers::parse(
            lines.iter().map(|line| format!("A: {line}\r\n")).collect::<String>() + "\r\n",
        )
        .unwrap()
    }

    #[test]
    fn finds_fields_by_names_of_all_lengths() {
        for length in [1, 2, 63, 64, 65, 128, 200] {
            let name = |first: char| format!("{first}{}", "x".repeat(length - 1));
            let lines = format!("{}: 1\r\nother: 2\r\n{}: 3\r\n\r\n", name('A'), name('b'));
            let mut headers = Headers::parse(lines).unwrap();
            assert_eq!(headers.get(name('a')), Some("1"), "{length}");
            assert_eq!(headers.get(name('B')), Some("3"), "{length}");
            assert_eq!(headers.get(name('c')), None, "{length}");
            assert_eq!(headers.filter(|name, _| name != b"other").get(name('a')), Some("1"));
            headers.remove(name('a'));
            assert_eq!((headers.get(name('a')), headers.get(name('b'))), (None, Some("3")));
            assert_eq!(headers.get("other"), Some("2"));
        }
    }

    #[test]
    fn bounds_the_members_and_the_bytes_of_a_list() {
        let long = |bytes: usize| "x".repeat(bytes);
        for (lines, members) in [
            (vec!["a, b,,c".to_owned()], 3),
            (vec!["a,".repeat(32)], 32),
            (vec!["a,".repeat(33)], 32),
            (vec!["a".to_owned(); 33], 32),
            // A member counts if it ends within the bytes.
            (vec![long(1_024)], 1),
            (vec![long(1_025)], 0),
            (vec![format!("a,{},b", long(1_022))], 2),
            (vec![format!("a,{},b", long(1_023))], 1),
            (vec![format!("{}a", ",".repeat(1_023))], 1),
            (vec![format!("{}a", ",".repeat(1_024))], 0),
            // The bytes of all lines count.
            (vec![long(1_022), "a".to_owned()], 2),
            (vec![long(1_023), "a".to_owned()], 1),
            (vec![long(1_025), "a".to_owned()], 0),
            (vec![], 0),
        ] {
            assert_eq!(headers(&lines).bounded_list("a").count(), members, "{lines:?}");
        }
    }
}
