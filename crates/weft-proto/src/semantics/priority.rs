//! Priorities of responses (RFC 9218).

/// The priority that a client gives a response, by the field `priority` or a PRIORITY_UPDATE frame.
///
/// ```
/// use weft_proto::semantics::priority::Priority;
///
/// assert_eq!(Priority::parse(b"u=1, i"), Priority { urgency: 1, is_incremental: true });
/// assert_eq!(Priority::parse(b"u=9"), Priority::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7 (§4.1).
    pub urgency: u8,
    /// Set if the client can use a part of the response, so that it may share the bandwidth with
    /// others (§4.2).
    pub is_incremental: bool,
}

const MAX_URGENCY: u8 = 7;
const DEFAULT_URGENCY: u8 = 3;

impl Default for Priority {
    fn default() -> Priority {
        Priority { urgency: DEFAULT_URGENCY, is_incremental: false }
    }
}

impl Priority {
    /// Parses a priority field value, a dictionary (RFC 8941 §3.2). Unknown members and values that
    /// are not valid are ignored (§4). A value that is no dictionary is ignored, too.
    pub fn parse(value: &[u8]) -> Priority {
        parse(value).unwrap_or_default()
    }
}

fn parse(value: &[u8]) -> Option<Priority> {
    let mut priority = Priority::default();
    let mut rest = value.trim_ascii();
    while !rest.is_empty() {
        let (member, behind) = next_member(rest)?;
        let key = &member[..key_length(member)?];
        // The last member of a name replaces the others.
        match (key, item(&member[key.len()..])?) {
            (b"u", item) => priority.urgency = item.and_then(urgency).unwrap_or(DEFAULT_URGENCY),
            (b"i", item) => priority.is_incremental = matches!(item, None | Some(b"?1")),
            _ => {}
        }
        rest = behind;
    }
    Some(priority)
}

/// Returns the first member of a list that is not empty, and the rest behind its comma. Commas in
/// strings and lists do not end it. Returns `None` if there is none, or no end of a string.
fn next_member(list: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut depth, mut at) = (0u32, 0);
    while let Some(byte) = list.get(at) {
        match byte {
            b'"' => at += string_length(&list[at..])? - 1,
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                let behind = list[at + 1..].trim_ascii_start();
                // A comma at the end is an error.
                return (!behind.is_empty()).then_some((list[..at].trim_ascii_end(), behind));
            }
            _ => {}
        }
        at += 1;
    }
    (depth == 0).then_some((list, b""))
}

/// Returns the length of a string in quotes (RFC 8941 §3.3.3).
fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns the length of the key at the start of a member (RFC 8941 §3.1.2).
fn key_length(member: &[u8]) -> Option<usize> {
    let is_key = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*');
    let length = member.iter().take_while(|byte| is_key(byte)).count();
    matches!(member.first(), Some(b'a'..=b'z' | b'*')).then_some(length)
}

/// Returns the item behind a key, without its parameters. A key without an item is true.
fn item(behind_key: &[u8]) -> Option<Option<&[u8]>> {
    match behind_key {
        [] | [b';', ..] => Some(None),
        [b'=', item @ ..] => {
            let length = item.iter().take_while(|byte| **byte != b';').count();
            (length > 0).then_some(Some(&item[..length]))
        }
        _ => None,
    }
}

/// Returns an urgency, if the item is an integer in its range.
fn urgency(item: &[u8]) -> Option<u8> {
    let (last, zeros) = item.split_last()?;
    let urgency = last.wrapping_sub(b'0');
    let is_valid = urgency <= MAX_URGENCY && zeros.len() < 15 && zeros.iter().all(|b| *b == b'0');
    is_valid.then_some(urgency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_priorities() {
        let default = (3, false);
        for (value, expected) in [
            (&b""[..], default),
            (b"u=0", (0, false)),
            (b"u=7, i", (7, true)),
            (b"i", (3, true)),
            (b"u=1,i", (1, true)),
            (b" u=5 \t,\t i ", (5, true)),
            (b"i=?1", (3, true)),
            (b"u=2, i=?0", (2, false)),
            (b"u=05", (5, false)),
            // Parameters, and unknown members of all types.
            (b"u=4;x=\"a\";y, i;z", (4, true)),
            (b"x, y=1.5, z=\"u=0, \\\"i\", a=(1 \"),\" c);q, u=6, b=:YQ==:", (6, false)),
            // The last one counts.
            (b"u=1, u=2, i, i=?0", (2, false)),
            (b"u=1, u=9", default),
            // Values out of range, and of other types.
            (b"u=8, i", (3, true)),
            (b"u=-1", default),
            (b"u=10", default),
            (b"u=1.0", default),
            (b"u=a, i=1", default),
            (b"u", default),
            // Not a dictionary.
            (b"u=1,", default),
            (b"u=1, , i", default),
            (b",u=1", default),
            (b"u=1 i", default),
            (b"U=1", default),
            (b"u=, i", default),
            (b"u=1, x=\"", default),
            (b"u=1, x=\"\\", default),
            (b"u=1, x=(", default),
            (b"u=1, x=)", default),
            (b"u=1, =2", default),
            (b"u=1, \xff", default),
        ] {
            let Priority { urgency, is_incremental } = Priority::parse(value);
            assert_eq!((urgency, is_incremental), expected, "{}", value.escape_ascii());
        }
    }
}
