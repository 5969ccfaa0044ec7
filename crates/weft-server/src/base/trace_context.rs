//! Identity of a request in a distributed trace: `traceparent` and `tracestate` (W3C Trace Context,
//! level 1). Pure.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

/// Maximum number of members of `tracestate` (§3.3.1.1).
const MAX_STATE_MEMBERS: usize = 32;

/// Maximum length of `tracestate` that is passed on (§3.3.1.5), in bytes.
const MAX_STATE_BYTES: usize = 512;

/// Length from which members are removed first if `tracestate` is too long (§3.3.1.5), in bytes.
const LONG_MEMBER_BYTES: usize = 128;

/// A request in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(crate) trace_id: NonZeroU128,
    /// The span of this server, which is the parent of those behind it.
    pub(crate) span_id: NonZeroU64,
    /// Parent span from the client's `traceparent`; `None` if the trace begins here.
    pub(crate) parent_id: Option<NonZeroU64>,
    /// The spans of the trace are recorded.
    pub(crate) is_sampled: bool,
}

/// The value of a `traceparent` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace_id: NonZeroU128,
    pub(crate) parent_id: NonZeroU64,
    pub(crate) is_sampled: bool,
}

/// The field of the context that upstreams and scripts get.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceContext { trace_id, span_id, is_sampled, .. } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(*is_sampled))
    }
}

impl TraceParent {
    /// Parses the value of the field; `None` if it is invalid. Of a later version, the part that
    /// version 00 has is parsed (§4.3).
    pub(crate) fn parse(value: &[u8]) -> Option<TraceParent> {
        const LENGTH: usize = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00".len();
        let (known, rest) = value.split_at_checked(LENGTH)?;
        let mut parts = known.split(|&b| b == b'-');
        let mut part = |digits: usize| parts.next().and_then(|part| hex(part, digits));
        let (version, trace_id) = (part(2)?, part(32)?);
        let (parent_id, flags) = (part(16)?, part(2)?);
        let is_complete = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let parent = TraceParent {
            trace_id: NonZeroU128::new(trace_id)?,
            parent_id: NonZeroU64::new(u64::try_from(parent_id).ok()?)?,
            is_sampled: flags & 1 == 1,
        };
        is_complete.then_some(parent)
    }
}

/// Parses a number of exactly `digits` lower-case hexadecimal digits.
fn hex(part: &[u8], digits: usize) -> Option<u128> {
    let is_hex = part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(part).ok().filter(|_| is_hex && part.len() == digits)?;
    u128::from_str_radix(text, 16).ok()
}

/// Joins the lines of `tracestate` within the limits. Returns `None` if they have no member, or an
/// invalid one, or too many: the field is then dropped.
pub(crate) fn trace_state<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let members = lines.flat_map(|line| line.split(|&b| b == b','));
    let trimmed = members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty());
    // One more is enough to detect that there are too many.
    let mut members: Vec<_> = trimmed.take(MAX_STATE_MEMBERS + 1).collect();
    if members.is_empty() || members.len() > MAX_STATE_MEMBERS {
        return None;
    }
    if !members.iter().all(|member| is_state_member(member)) {
        return None;
    }
    let length = |members: &[&[u8]]| {
        members.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1)
    };
    while length(&members) > MAX_STATE_BYTES {
        let long = members.iter().rposition(|member| member.len() > LONG_MEMBER_BYTES);
        members.remove(long.unwrap_or(members.len() - 1));
    }
    (!members.is_empty()).then(|| members.join(&b','))
}

/// Returns true if the member has the form `KEY=VALUE` (§3.3.1.3).
fn is_state_member(member: &[u8]) -> bool {
    let Some(at) = member.iter().position(|&b| b == b'=') else { return false };
    let (key, value) = (&member[..at], &member[at + 1..]);
    let is_first = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_key = |b: &u8| is_first(b) || b"_-*/@".contains(b);
    let is_value = |b: &u8| (b' '..=b'~').contains(b) && !b",=".contains(b);
    (1..=256).contains(&key.len())
        && is_first(&key[0])
        && key.iter().all(is_key)
        && (1..=256).contains(&value.len())
        && value.iter().all(is_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn parses_valid_fields_only() {
        let replaced = |at: usize, with: &str| {
            let mut text = VALID.to_owned();
            text.replace_range(at..at + with.len(), with);
            text
        };
        for (value, expected) in [
            (VALID.to_owned(), Some(true)),
            (replaced(53, "00"), Some(false)),
            (replaced(53, "fe"), Some(false)),
            (replaced(53, "ff"), Some(true)),
            (replaced(0, "01"), Some(true)),
            (replaced(0, "cc") + "-what-comes-later", Some(true)),
            (replaced(0, "cc") + ".later", None),
            (format!("{VALID}-later"), None),
            (replaced(0, "ff"), None),
            (replaced(0, "0x"), None),
            (replaced(2, "_"), None),
            (replaced(3, "0AF7"), None),
            (replaced(3, "+af7"), None),
            (replaced(3, "00000000000000000000000000000000"), None),
            (replaced(36, "0000000000000000"), None),
            (replaced(36, "g7"), None),
            (replaced(53, "0g"), None),
            (VALID[..54].to_owned(), None),
            (format!(" {VALID}"), None),
            (String::new(), None),
        ] {
            let parsed = TraceParent::parse(value.as_bytes());
            assert_eq!(parsed.map(|parent| parent.is_sampled), expected, "{value}");
        }
        let TraceParent { trace_id, parent_id, .. } = TraceParent::parse(VALID.as_bytes()).unwrap();
        let context = TraceContext {
            trace_id,
            span_id: NonZeroU64::new(0xb).unwrap(),
            parent_id: Some(parent_id),
            is_sampled: true,
        };
        assert_eq!(parent_id.get(), 0xb7ad_6b71_6920_3331);
        let expected = "00-0af7651916cd43dd8448eb211c80319c-000000000000000b-01";
        assert_eq!(context.to_string(), expected);
    }

    #[test]
    fn keeps_the_state_within_its_limits() {
        let members =
            |count: usize| (0..count).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        let long = |key: &str, bytes: usize| format!("{key}={}", "v".repeat(bytes - 2));
        for (lines, expected) in [
            (&["a=1"][..], Some("a=1".to_owned())),
            (&["a=1, b=2 ,,", "c@d=3"], Some("a=1,b=2,c@d=3".to_owned())),
            (&["0_-*/@=!~ x"], Some("0_-*/@=!~ x".to_owned())),
            (&[], None),
            (&["", " , "], None),
            (&["a"], None),
            (&["a="], None),
            (&["A=1"], None),
            (&["_a=1"], None),
            (&["=1"], None),
            (&["a=1=2"], None),
            (&["a=\u{e9}"], None),
            (&["a=1", "b"], None),
            (&[&*members(32)], Some(members(32))),
            (&[&*members(33)], None),
            (&[&*members(16), &*members(17)], None),
            (&[&*long("a", 258)], Some(long("a", 258))),
            (&[&*long("a", 259)], None),
            // Long members go first, then the last ones.
            (&[&*long("a", 200), "b=1", &*long("c", 200), &*long("d", 120)], {
                Some([&*long("a", 200), "b=1", &*long("d", 120)].join(","))
            }),
            (&[&*long("a", 128), &*long("b", 128), &*long("c", 128), &*long("d", 128)], {
                Some([long("a", 128), long("b", 128), long("c", 128)].join(","))
            }),
        ] {
            let found = trace_state(lines.iter().map(|line| line.as_bytes()));
            let found = found.map(|state| String::from_utf8(state).unwrap());
            assert_eq!(found, expected, "{lines:?}");
        }
    }
}
