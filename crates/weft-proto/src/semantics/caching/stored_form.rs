//! Bytes that represent a policy and a selector, for caches that keep responses in files.
//!
//! Numbers have 8 bytes, the least significant one first. Texts have their length before them. The
//! form has no version: a file that contains it needs one.

use crate::semantics::caching::policy::{Policy, StaleUse};
use crate::semantics::caching::vary::{MAX_NAMES, Selector};

/// Maximum number of excluded fields that are read.
const MAX_EXCLUDED: u64 = 1_000;

/// The permissions of stale responses by their numbers.
const STALE_USES: [StaleUse; 3] = [StaleUse::Permitted, StaleUse::Forbidden, StaleUse::OriginOnly];

/// Appends a number.
pub fn push_number(output: &mut Vec<u8>, number: u64) {
    output.extend_from_slice(&number.to_le_bytes());
}

/// Appends a text, with its length.
pub fn push_bytes(output: &mut Vec<u8>, bytes: &[u8]) {
    push_number(output, bytes.len() as u64);
    output.extend_from_slice(bytes);
}

/// Takes a number from the start of `input`; `None` if `input` is too short.
pub fn take_number(input: &mut &[u8]) -> Option<u64> {
    let (number, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(u64::from_le_bytes(*number))
}

/// Takes a text from the start of `input`; `None` if `input` is too short.
pub fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(bytes)
}

fn take_text(input: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_bytes(input)?.to_vec()).ok()
}

/// Takes the number of items that follow; `None` if it exceeds `max`.
pub fn take_count(input: &mut &[u8], max: u64) -> Option<u64> {
    take_number(input).filter(|count| *count <= max)
}

fn push_optional(output: &mut Vec<u8>, value: Option<&[u8]>) {
    push_number(output, value.is_some().into());
    push_bytes(output, value.unwrap_or_default());
}

fn take_optional(input: &mut &[u8]) -> Option<Option<Vec<u8>>> {
    let is_present = take_count(input, 1)? == 1;
    let value = take_bytes(input)?;
    Some(is_present.then(|| value.to_vec()))
}

impl Policy {
    /// Appends the stored form.
    pub fn store(&self, output: &mut Vec<u8>) {
        for number in [
            self.received,
            self.initial_age,
            self.lifetime,
            self.stale_while_revalidate,
            self.stale_if_error,
            self.is_no_cache.into(),
            STALE_USES.iter().position(|it| *it == self.stale_use).unwrap_or(0) as u64,
            self.excluded_fields.len() as u64,
        ] {
            push_number(output, number);
        }
        self.excluded_fields.iter().for_each(|name| push_bytes(output, name.as_bytes()));
    }

    /// Takes a policy from the start of `input`; `None` if there is none.
    pub fn load(input: &mut &[u8]) -> Option<Policy> {
        Some(Policy {
            received: take_number(input)?,
            initial_age: take_number(input)?,
            lifetime: take_number(input)?,
            stale_while_revalidate: take_number(input)?,
            stale_if_error: take_number(input)?,
            is_no_cache: take_count(input, 1)? == 1,
            stale_use: *STALE_USES.get(take_number(input)? as usize)?,
            excluded_fields: {
                let count = take_count(input, MAX_EXCLUDED)?;
                (0..count).map(|_| take_text(input)).collect::<Option<_>>()?
            },
        })
    }
}

impl Selector {
    /// Appends the stored form.
    pub fn store(&self, output: &mut Vec<u8>) {
        push_number(output, self.fields.len() as u64);
        for (name, value) in &self.fields {
            push_bytes(output, name.as_bytes());
            push_optional(output, value.as_deref());
        }
        push_optional(output, self.language.as_deref());
    }

    /// Takes a selector from the start of `input`; `None` if there is none.
    pub fn load(input: &mut &[u8]) -> Option<Selector> {
        let count = take_count(input, MAX_NAMES as u64)?;
        let mut field = || Some((take_text(input)?, take_optional(input)?));
        let fields = (0..count).map(|_| field()).collect::<Option<_>>()?;
        Some(Selector { fields, language: take_optional(input)? })
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method, StatusCode};

    use super::*;
    use crate::headers::Headers;
    use crate::semantics::caching::{Defaults, Exchange};

    fn stored() -> (Policy, Selector, Vec<u8>) {
        let request = Headers::parse("Accept-Language: fr\r\nHost: a\r\n\r\n").unwrap();
        let mut response = HeaderMap::new();
        for (name, value) in [
            ("cache-control", "max-age=60, private=\"x-a, x-b\", no-cache, stale-if-error=9"),
            ("vary", "Accept-Language, X-Absent"),
            ("content-language", "fr"),
            ("etag", "\"1\""),
        ] {
            response.append(name, value.parse().unwrap());
        }
        let exchange = Exchange {
            method: &Method::GET,
            request: &request,
            status: StatusCode::OK,
            response: &response,
            requested: 1_000,
            received: 1_001,
        };
        let policy = Policy::of(&exchange, &Defaults::default()).unwrap();
        let selector = Selector::of(&request, &response);
        let mut bytes = Vec::new();
        policy.store(&mut bytes);
        selector.store(&mut bytes);
        (policy, selector, bytes)
    }

    #[test]
    fn policies_and_selectors_are_read_as_they_were_stored() {
        let (policy, selector, bytes) = stored();
        assert!(!policy.excluded_fields().is_empty() && !selector.is_empty());
        let mut input = &bytes[..];
        assert_eq!(Policy::load(&mut input), Some(policy));
        assert_eq!(Selector::load(&mut input), Some(selector));
        assert!(input.is_empty());
    }

    #[test]
    fn cut_bytes_are_refused() {
        let (.., bytes) = stored();
        for length in 0..bytes.len() {
            let mut input = &bytes[..length];
            let both = Policy::load(&mut input).and_then(|_| Selector::load(&mut input));
            assert_eq!(both, None, "{length} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn huge_lengths_are_refused() {
        let mut bytes = Vec::new();
        push_number(&mut bytes, u64::MAX);
        assert_eq!(take_bytes(&mut &bytes[..]), None);
        assert_eq!(Selector::load(&mut &bytes[..]), None);
    }
}
