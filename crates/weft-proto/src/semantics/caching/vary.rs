//! Selecting fields: the fields of a request that its response varies by (RFC 9111 §4.1).

use std::cmp::Reverse;

use crate::list::list_members;
use crate::semantics::caching::fields::FieldValues;

/// Maximum number of names in `Vary`. A response that varies by more is not stored.
pub const MAX_NAMES: usize = 16;

/// Maximum number of bytes of a selecting value that are compared in normalized form. Longer
/// values are compared as they are.
const MAX_NORMALIZED: usize = 1_024;

/// The values of the selecting fields with which a response was requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    pub(super) fields: Vec<(String, Option<Vec<u8>>)>,
    /// The language of the response, if it varies by `Accept-Language`.
    pub(super) language: Option<Vec<u8>>,
}

/// Returns true if requests can be compared with the request of this response: it does not vary by
/// `*`, and not by more than [`MAX_NAMES`] fields.
pub fn is_selectable(response: &impl FieldValues) -> bool {
    let mut count = 0;
    response.members("vary").all(|name| {
        count += 1;
        name != b"*" && count <= MAX_NAMES
    })
}

impl Selector {
    /// Takes the values of the fields that `response` varies by from `request`.
    pub fn of(request: &impl FieldValues, response: &impl FieldValues) -> Selector {
        let names = response.members("vary").filter_map(|name| std::str::from_utf8(name).ok());
        let fields = names.map(str::to_ascii_lowercase).map(|name| {
            let value = selecting_value(request, &name);
            (name, value)
        });
        let language = response.first_value("content-language").map(<[u8]>::to_ascii_lowercase);
        Selector { fields: fields.collect(), language }
    }

    /// Returns true if the response may be selected for `request`: all values are the same after
    /// their normalization.
    pub fn matches(&self, request: &impl FieldValues) -> bool {
        self.fields.iter().all(|(name, stored)| {
            selecting_value(request, name) == *stored
                || name == "accept-language" && self.is_preferred_language(request)
        })
    }

    /// Returns true if `response` varies by the same fields. A 304 may change them.
    pub fn has_fields_of(&self, response: &impl FieldValues) -> bool {
        let names = response.members("vary").map(<[u8]>::to_ascii_lowercase);
        names.eq(self.names().map(|name| name.as_bytes().to_vec()))
    }

    /// Returns true if the client prefers the language of the response to all others: the origin has
    /// it, and would select it.
    fn is_preferred_language(&self, request: &impl FieldValues) -> bool {
        let Some(language) = &self.language else { return false };
        let mut ranges: Vec<_> =
            request.members("accept-language").take(MAX_NAMES).map(quality).collect();
        ranges.sort_by_key(|(_, quality)| Reverse(*quality));
        let is_first = ranges
            .first()
            .is_some_and(|(range, quality)| *quality > 0 && range.eq_ignore_ascii_case(language));
        is_first && ranges.get(1).is_none_or(|(_, second)| *second < ranges[0].1)
    }

    /// Returns true if the response does not vary.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The names of the selecting fields, in lowercase.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| name.as_str())
    }
}

/// Returns the value of a selecting field in the form in which it is compared; `None` if it is
/// absent. Lines are combined and white space around commas is removed. The order of languages,
/// codings and charsets is irrelevant, and so is the preference among codings.
pub fn selecting_value(request: &impl FieldValues, name: &str) -> Option<Vec<u8>> {
    let mut lines = request.values(name).peekable();
    lines.peek()?;
    let lines: Vec<&[u8]> = lines.collect();
    if lines.iter().map(|line| line.len()).sum::<usize>() > MAX_NORMALIZED {
        return Some(lines.join(&b","[..]));
    }
    let members = lines.into_iter().flat_map(list_members);
    let mut members: Vec<Vec<u8>> = match name {
        "accept-encoding" => members.map(quality).filter_map(accepted_coding).collect(),
        "accept-language" | "accept-charset" => members.map(compact).collect(),
        _ => return Some(members.collect::<Vec<_>>().join(&b","[..])),
    };
    members.sort_unstable();
    members.dedup();
    Some(members.join(&b","[..]))
}

fn compact(member: &[u8]) -> Vec<u8> {
    let graphic = member.iter().filter(|byte| !byte.is_ascii_whitespace());
    graphic.map(u8::to_ascii_lowercase).collect()
}

fn accepted_coding((name, quality): (&[u8], u16)) -> Option<Vec<u8>> {
    let name = name.to_ascii_lowercase();
    match quality {
        0 => (name == b"identity" || name == b"*").then(|| [&name[..], b";q=0"].concat()),
        _ => (name != b"identity").then_some(name),
    }
}

/// Splits a member into its value and its quality in thousandths (RFC 9110 §12.4.2). An invalid
/// quality is 0.
fn quality(member: &[u8]) -> (&[u8], u16) {
    let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| match part {
        [b'q' | b'Q', b'=', value @ ..] => Some(value),
        _ => None,
    });
    (name, quality.map_or(1_000, thousandths))
}

fn thousandths(value: &[u8]) -> u16 {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<f32>().ok());
    number.filter(|number| (0.0..=1.0).contains(number)).map_or(0, |it| (it * 1_000.0) as u16)
}
