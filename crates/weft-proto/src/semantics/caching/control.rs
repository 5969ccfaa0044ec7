//! Directives of `Cache-Control` (RFC 9111 §5.2) and of targeted fields (RFC 9213).

use crate::list::list_members;
use crate::semantics::caching::fields::FieldValues;

/// The targeted fields that a cache of this kind obeys, most specific first (RFC 9213 §2). The
/// first valid field replaces `Cache-Control` and `Expires`.
pub const TARGETED_FIELDS: [&str; 2] = ["weft-cache-control", "cdn-cache-control"];

/// The greatest number of seconds of a directive, about 68 years (RFC 9111 §1.2.2).
pub const MAX_SECONDS: u64 = 1 << 31;

/// The directives of a response.
///
/// A duration that is no number is 0: such a response is stale (RFC 9111 §4.2.1). Of several
/// values of one directive the smallest counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    pub(super) is_present: bool,
    pub(super) is_no_store: bool,
    pub(super) is_no_cache: bool,
    pub(super) is_private: bool,
    pub(super) is_public: bool,
    pub(super) must_revalidate: bool,
    pub(super) proxy_revalidate: bool,
    pub(super) must_understand: bool,
    pub(super) max_age: Option<u64>,
    pub(super) s_maxage: Option<u64>,
    pub(super) stale_while_revalidate: Option<u64>,
    pub(super) stale_if_error: Option<u64>,
    /// Names of fields that `private="..."` and `no-cache="..."` exclude, in lowercase.
    pub(super) excluded_fields: Vec<String>,
}

impl Control {
    /// Reads the directives of a response: from a targeted field, or from `Cache-Control`. The
    /// second value is true for a targeted field.
    pub(super) fn of(response: &impl FieldValues) -> (Control, bool) {
        for name in TARGETED_FIELDS {
            if let Some(control) = Control::targeted(response, name) {
                return (control, true);
            }
        }
        let mut control = Control::default();
        for value in response.values("cache-control") {
            control.is_present = true;
            members(value).for_each(|member| control.add(member));
        }
        (control, false)
    }

    /// Reads a targeted field: a dictionary of structured fields (RFC 9213 §2.1). `None` if it is
    /// absent, empty or invalid.
    fn targeted(response: &impl FieldValues, name: &str) -> Option<Control> {
        let mut control = Control { is_present: true, ..Control::default() };
        let mut has_members = false;
        for member in response.values(name).flat_map(members) {
            has_members = true;
            if !is_dictionary_member(member) {
                return None;
            }
            let member = member.split(|&byte| byte == b';').next().unwrap_or(member);
            let argument = split_directive(member).1.filter(|value| !value.starts_with(b"\""));
            if is_duration(member) && seconds(argument).is_none() {
                return None;
            }
            if !member.ends_with(b"=?0") {
                control.add(member);
            }
        }
        has_members.then_some(control)
    }

    fn add(&mut self, member: &[u8]) {
        let (name, value) = split_directive(member);
        match name.to_ascii_lowercase().as_slice() {
            b"no-store" => self.is_no_store = true,
            // Some of the fields need validation: the whole response is validated instead.
            b"no-cache" => self.is_no_cache = true,
            b"private" => match value.map(unquoted).filter(|value| !value.is_empty()) {
                None => self.is_private = true,
                Some(names) => self.exclude(names),
            },
            b"public" => self.is_public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"max-age" => add_seconds(&mut self.max_age, value),
            b"s-maxage" => add_seconds(&mut self.s_maxage, value),
            b"stale-while-revalidate" => add_seconds(&mut self.stale_while_revalidate, value),
            b"stale-if-error" => add_seconds(&mut self.stale_if_error, value),
            _ => {}
        }
    }

    fn exclude(&mut self, names: &[u8]) {
        let names = list_members(names).filter_map(|name| std::str::from_utf8(name).ok());
        self.excluded_fields.extend(names.map(str::to_ascii_lowercase));
    }
}

/// Returns the members of a list whose commas may be in quoted strings. Without the end of a quoted
/// string, each comma separates, so that no directive is hidden.
fn members(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut end = QuotedStrings::default();
    list.iter().for_each(|byte| end.advance(*byte));
    let has_ends = !end.is_inside;
    let mut strings = QuotedStrings::default();
    let members = list.split(move |byte| {
        strings.advance(*byte);
        *byte == b',' && !(has_ends && strings.is_inside)
    });
    members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// A position in a text with quoted strings (RFC 9110 §5.6.4).
#[derive(Default)]
struct QuotedStrings {
    is_inside: bool,
    is_escaped: bool,
}

impl QuotedStrings {
    fn advance(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.is_inside => self.is_escaped = true,
            b'"' => self.is_inside = !self.is_inside,
            _ => {}
        }
    }
}

/// Returns true for a directive whose argument is a number of seconds.
fn is_duration(member: &[u8]) -> bool {
    let names: [&[u8]; 4] = [b"max-age", b"s-maxage", b"stale-while-revalidate", b"stale-if-error"];
    names.contains(&split_directive(member).0)
}

/// Splits a directive into its name and its argument.
pub(super) fn split_directive(member: &[u8]) -> (&[u8], Option<&[u8]>) {
    match member.iter().position(|&byte| byte == b'=') {
        Some(at) => (&member[..at], Some(&member[at + 1..])),
        None => (member, None),
    }
}

/// Reads a number of seconds: digits, also as a quoted string (RFC 9111 §5.2).
pub(super) fn seconds(value: Option<&[u8]>) -> Option<u64> {
    let digits = unquoted(value?);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add((digit - b'0').into());
    Some(digits.iter().fold(0, add).min(MAX_SECONDS))
}

fn add_seconds(seconds_of: &mut Option<u64>, value: Option<&[u8]>) {
    let value = seconds(value).unwrap_or(0);
    *seconds_of = Some(seconds_of.map_or(value, |other| other.min(value)));
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

/// Returns true for a member of a dictionary (RFC 9651 §3.2) whose value is no inner list.
fn is_dictionary_member(member: &[u8]) -> bool {
    let (key, value) = split_directive(member);
    let is_key = |key: &[u8]| {
        key.first().is_some_and(|first| first.is_ascii_lowercase() || *first == b'*')
            && key.iter().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(byte)
            })
    };
    let key = key.split(|&byte| byte == b';').next().unwrap_or(key);
    is_key(key) && value.is_none_or(is_item)
}

/// Returns true for a bare item, with parameters that are not examined.
fn is_item(value: &[u8]) -> bool {
    let bare = value.split(|&byte| byte == b';').next().unwrap_or(value);
    match bare {
        [b'?', b'0' | b'1'] => true,
        [b'"', .., b'"'] | [b':', .., b':'] => bare.len() >= 2,
        [first, rest @ ..] if first.is_ascii_alphabetic() || *first == b'*' => {
            rest.iter().all(|byte| byte.is_ascii_graphic() && !b"\"(),;<=>?@[\\]{}".contains(byte))
        }
        [b'-', digits @ ..] => is_number(digits),
        digits => is_number(digits),
    }
}

fn is_number(digits: &[u8]) -> bool {
    let dots = digits.iter().filter(|&&byte| byte == b'.').count();
    digits.first().is_some_and(u8::is_ascii_digit)
        && digits.last().is_some_and(u8::is_ascii_digit)
        && dots <= 1
        && digits.len() <= 16
        && digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}
