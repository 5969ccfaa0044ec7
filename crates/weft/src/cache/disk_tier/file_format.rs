//! The format of a file: a preamble, the head of the response with room to grow, and the content.
//!
//! A file with another version, another length or a wrong checksum is no file of this cache.

use std::fs;
use std::io;

use http::{HeaderName, HeaderValue, StatusCode};
use weft_proto::semantics::caching::Policy;
use weft_proto::semantics::caching::stored_form::{
    push_bytes, push_number, take_bytes, take_count, take_number,
};
use weft_proto::semantics::caching::vary::Selector;

use super::checksum::Checksum;
use crate::cache::key::Key;
use crate::cache::stored_response::StoredHead;
use crate::message::fields::Field;
use crate::sys::read_exact_at;

/// Marks a file. The last byte is the version of the format.
const MAGIC: [u8; 8] = *b"weft-rc\x01";

/// Length of the preamble.
const PREAMBLE_BYTES: u64 = 48;

/// Position of the byte that is 1 in an expired response. It is outside of the checksum, so that it
/// can be changed in place.
pub(super) const EXPIRED_AT: u64 = 8;

/// Maximum length of a stored head.
pub(super) const MAX_HEAD_BYTES: usize = 1 << 20;

/// Bytes that are read at once: the preamble and most heads.
const FIRST_READ: u64 = 4_096;

/// Bytes of a content that are read at once.
pub(super) const PIECE: usize = 64 << 10;

/// Maximum number of fields that are read.
const MAX_FIELDS: u64 = 10_000;

/// Lengths of the parts of a file, and the checksum of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    head_length: u64,
    /// The room for the head.
    head_capacity: u64,
    pub(super) content_length: u64,
    pub(super) content_checksum: u64,
}

/// Everything of a file but its content.
#[derive(Debug)]
pub(super) struct FileHead {
    pub(super) layout: Layout,
    pub(super) head: StoredHead,
    pub(super) is_expired: bool,
}

impl Layout {
    /// Returns the layout of a new file.
    pub(super) fn new(head_length: u64, content_length: u64, content_checksum: u64) -> Layout {
        // A 304 may make the head longer.
        let head_capacity = (head_length + 256).next_multiple_of(512);
        Layout { head_length, head_capacity, content_length, content_checksum }
    }

    /// Position of the content.
    pub(super) fn content_start(&self) -> u64 {
        PREAMBLE_BYTES + self.head_capacity
    }

    /// Length of the file.
    pub(super) fn file_length(&self) -> u64 {
        self.content_start().saturating_add(self.content_length)
    }

    /// Returns the layout with a head of another length; `None` if there is no room for it.
    pub(super) fn with_head(self, head_length: u64) -> Option<Layout> {
        (head_length <= self.head_capacity).then_some(Layout { head_length, ..self })
    }

    /// Returns the preamble and the head, without the room behind it.
    pub(super) fn start_of_file(&self, head: &[u8], is_expired: bool) -> Vec<u8> {
        let mut start = Vec::with_capacity(PREAMBLE_BYTES as usize + head.len());
        start.extend_from_slice(&MAGIC);
        push_number(&mut start, is_expired.into());
        start.extend_from_slice(&(self.head_length as u32).to_le_bytes());
        start.extend_from_slice(&(self.head_capacity as u32).to_le_bytes());
        push_number(&mut start, self.content_length);
        push_number(&mut start, self.content_checksum);
        let checksum = checksum(&start, head);
        push_number(&mut start, checksum);
        start.extend_from_slice(head);
        start
    }

    fn read(preamble: &[u8]) -> Option<(Layout, u64)> {
        let mut input = preamble.strip_prefix(&MAGIC)?;
        take_number(&mut input)?;
        let lengths = take_number(&mut input)?;
        let layout = Layout {
            head_length: lengths & 0xffff_ffff,
            head_capacity: lengths >> 32,
            content_length: take_number(&mut input)?,
            content_checksum: take_number(&mut input)?,
        };
        let is_valid = layout.head_length <= layout.head_capacity
            && layout.head_length <= MAX_HEAD_BYTES as u64;
        is_valid.then_some((layout, take_number(&mut input)?))
    }
}

/// The checksum of the lengths and of the head. `start` is the preamble up to the checksum.
fn checksum(start: &[u8], head: &[u8]) -> u64 {
    let mut checksum = Checksum::default();
    checksum.update(start.get(16..40).unwrap_or_default());
    checksum.update(head);
    checksum.finish()
}

/// Reads a file of this length without its content.
///
/// # Errors
/// Errors of the system, and [`damaged`].
pub(super) fn read_head(file: &fs::File, length: u64) -> io::Result<FileHead> {
    let mut start = vec![0; length.min(FIRST_READ) as usize];
    read_exact_at(file, &mut start, 0)?;
    let (layout, expected) = Layout::read(&start).ok_or_else(damaged)?;
    if layout.file_length() != length {
        return Err(damaged());
    }
    let needed = (PREAMBLE_BYTES + layout.head_length) as usize;
    if start.len() < needed {
        start = vec![0; needed];
        read_exact_at(file, &mut start, 0)?;
    }
    let head = &start[PREAMBLE_BYTES as usize..needed];
    if checksum(&start, head) != expected {
        return Err(damaged());
    }
    let is_expired = start[EXPIRED_AT as usize] != 0;
    let head = decode_head(head).ok_or_else(damaged)?;
    Ok(FileHead { layout, head, is_expired })
}

/// Reads the content in pieces, and compares its checksum.
///
/// # Errors
/// Errors of the system, and [`damaged`].
pub(super) fn verify_content(file: &fs::File, layout: &Layout) -> io::Result<()> {
    let (mut checksum, mut piece) = (Checksum::default(), vec![0; PIECE]);
    let (mut at, end) = (layout.content_start(), layout.file_length());
    while at < end {
        let piece = &mut piece[..(end - at).min(PIECE as u64) as usize];
        read_exact_at(file, piece, at)?;
        checksum.update(piece);
        at += piece.len() as u64;
    }
    match checksum.finish() == layout.content_checksum {
        true => Ok(()),
        false => Err(damaged()),
    }
}

/// The error for a file that is none of this cache.
pub(super) fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the file is damaged")
}

/// Returns true for errors of a file that will never be read.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Returns the bytes of a head; `None` if it is too long.
pub(super) fn encode_head(head: &StoredHead) -> Option<Vec<u8>> {
    let mut output = Vec::with_capacity(1_024);
    push_bytes(&mut output, head.key.url.as_bytes());
    push_bytes(&mut output, &head.key.extras);
    head.selector.store(&mut output);
    push_number(&mut output, head.status.as_u16().into());
    push_number(&mut output, head.fields.len() as u64);
    for (name, value) in &head.fields {
        push_bytes(&mut output, name.as_str().as_bytes());
        push_bytes(&mut output, value.as_bytes());
    }
    head.policy.store(&mut output);
    (output.len() <= MAX_HEAD_BYTES).then_some(output)
}

fn decode_head(mut input: &[u8]) -> Option<StoredHead> {
    let input = &mut input;
    let url = std::str::from_utf8(take_bytes(input)?).ok()?;
    let key = Key { url: url.into(), extras: take_bytes(input)?.into() };
    let selector = Selector::load(input)?;
    let status = StatusCode::from_u16(take_number(input)?.try_into().ok()?).ok()?;
    let count = take_count(input, MAX_FIELDS)?;
    let fields = (0..count).map(|_| take_field(input)).collect::<Option<_>>()?;
    let policy = Policy::load(input)?;
    input.is_empty().then_some(StoredHead { key, selector, status, fields, policy })
}

fn take_field(input: &mut &[u8]) -> Option<Field> {
    let name = HeaderName::from_bytes(take_bytes(input)?).ok()?;
    Some((name, HeaderValue::from_bytes(take_bytes(input)?).ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use http::Method;
    use weft_proto::semantics::caching::{Defaults, Exchange};

    use super::*;

    const CONTENT: &[u8] = b"the content of the response";

    fn head() -> StoredHead {
        let request = weft_proto::Headers::parse("Accept-Language: fr\r\n\r\n").unwrap();
        let fields: Vec<Field> = [
            ("cache-control", "max-age=60, private=\"x-a, x-b\""),
            ("vary", "accept-language"),
            ("etag", "\"1\""),
        ]
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .into();
        let (method, status) = (&Method::GET, StatusCode::OK);
        let exchange = Exchange {
            method,
            request: &request,
            status,
            response: &fields,
            requested: 1,
            received: 2,
        };
        let policy = Policy::of(&exchange, &Defaults::default()).unwrap();
        let key = Key { url: "http://a/path".into(), extras: (*b"x-host:b\n").into() };
        StoredHead { key, selector: Selector::of(&request, &fields), status, fields, policy }
    }

    /// Returns the bytes of a file with a head.
    fn file_with(head: &[u8]) -> Vec<u8> {
        let mut checksum = Checksum::default();
        checksum.update(CONTENT);
        let layout = Layout::new(head.len() as u64, CONTENT.len() as u64, checksum.finish());
        let mut file = layout.start_of_file(head, false);
        file.resize(layout.content_start() as usize, 0);
        file.extend_from_slice(CONTENT);
        file
    }

    fn read(bytes: &[u8]) -> io::Result<FileHead> {
        let file = tempfile::tempfile()?;
        file.write_all_at(bytes, 0)?;
        let head = read_head(&file, bytes.len() as u64)?;
        verify_content(&file, &head.layout).map(|()| head)
    }

    /// Changes some bytes, or the length.
    fn mutate(bytes: &mut Vec<u8>, mut random: impl FnMut(usize) -> usize) {
        for _ in 0..=random(4) {
            let at = random(bytes.len().max(1));
            match random(6) {
                0 => bytes.truncate(at),
                1 => bytes.extend_from_slice(&[0xff; 9][..random(9)]),
                2 => bytes.resize((at + 1).max(bytes.len()), 0),
                3 if at + 8 <= bytes.len() => {
                    let number = [0, 1, 2, 255, 1 << 16, 1 << 32, 1 << 63, u64::MAX][random(8)];
                    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
                }
                _ if at < bytes.len() => bytes[at] ^= 1 << random(8),
                _ => {}
            }
        }
    }

    /// Changed files, and files with valid checksums and a changed head. Many of them:
    /// `WEFT_MUTATIONS=10000000 cargo test --release -p weft-http --features cache --lib mutations`
    #[test]
    fn mutations_are_damaged_or_the_same_response() {
        let count = std::env::var("WEFT_MUTATIONS").map_or(20_000, |it| it.parse().unwrap());
        let original = encode_head(&head()).unwrap();
        let file = file_with(&original);
        assert_eq!(encode_head(&read(&file).unwrap().head).unwrap(), original);
        let (mut state, mut readable) = (1_u64, 0);
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for number in 0..count {
            let mut changed = original.clone();
            mutate(&mut changed, &mut random);
            // A head that is read is written so that it is read as the same.
            if let Some(head) = decode_head(&changed) {
                readable += 1;
                let bytes = encode_head(&head).unwrap();
                assert_eq!(encode_head(&decode_head(&bytes).unwrap()), Some(bytes), "{number}");
            }
            // Files are slower, and their checksums leave nothing to decode.
            if number % 20 == 0 {
                let mut changed = file.clone();
                mutate(&mut changed, &mut random);
                if let Ok(found) = read(&changed) {
                    assert_eq!(encode_head(&found.head).unwrap(), original, "{number}");
                }
            }
        }
        assert!(readable > count / 100, "{readable} of {count} are heads");
    }
}
