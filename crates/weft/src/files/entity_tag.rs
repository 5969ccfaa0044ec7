//! Entity tags of the representations of a file (RFC 9110 §8.8.3). Pure.

use std::fmt::Write;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_LANGUAGE};

use crate::disk::FileVersion;
use crate::message::fields::Field;
use crate::message::response::field_value;

/// Makes the strong validator of a representation with these fields.
///
/// It consists of the version of the file, of a hash of its `contents` if these are in memory, and
/// of language and content coding: translations may have equal lengths and times. The hash detects
/// a change of contents that keeps length and modification time, as by `cp --preserve`. Machines
/// with the same release of the server compute the same hash.
pub(super) fn strong(
    version: &FileVersion,
    contents: Option<&[u8]>,
    fields: &[Field],
) -> HeaderValue {
    let mut tag = format!("\"{}", version.opaque_tag());
    if let Some(contents) = contents {
        let hash = FixedState::with_seed(0).hash_one(contents);
        write!(tag, "-{hash:x}").expect("writing to a String does not fail");
    }
    let selecting =
        fields.iter().filter(|(name, _)| [CONTENT_LANGUAGE, CONTENT_ENCODING].contains(name));
    for (_, value) in selecting {
        tag.push('-');
        // A quote would end the tag.
        let characters = value.as_bytes().iter().filter(|b| b.is_ascii_alphanumeric());
        tag.extend(characters.copied().map(char::from));
    }
    tag.push('"');
    field_value(tag.as_bytes())
}

/// Makes the weak form of an entity tag.
pub(super) fn weak(tag: &HeaderValue) -> HeaderValue {
    match tag.as_bytes() {
        [b'W', b'/', ..] => tag.clone(),
        strong => field_value(&[b"W/", strong].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_representations_and_contents() {
        let version = FileVersion::from_bytes(b"");
        let field = |name, value| (name, HeaderValue::from_static(value));
        let (de, br) = (field(CONTENT_LANGUAGE, "de-\"AT"), field(CONTENT_ENCODING, "br"));
        let tag = |contents, fields: &[Field]| {
            strong(&version, contents, fields).to_str().unwrap().to_owned()
        };
        let plain = tag(None, &[]);
        let opaque = plain.trim_matches('"');
        assert_eq!(plain, format!("\"{opaque}\""));
        assert_eq!(tag(None, &[de, br.clone()]), format!("\"{opaque}-deAT-br\""));
        let contents: [&[u8]; 2] = [b"a", b"b"];
        let [a, b] = contents.map(|contents| tag(Some(contents), std::slice::from_ref(&br)));
        assert_eq!(a, tag(Some(b"a"), std::slice::from_ref(&br)));
        assert!(a != b && a.starts_with(&format!("\"{opaque}-")) && a.ends_with("-br\""), "{a}");
    }

    #[test]
    fn weak_tag_has_one_prefix() {
        let tag = weak(&HeaderValue::from_static("\"a\""));
        assert_eq!((&tag, weak(&tag).as_bytes()), (&weak(&tag), &b"W/\"a\""[..]));
    }
}
