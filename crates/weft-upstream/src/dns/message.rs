//! Queries of the DNS and their answers (RFC 1035, RFC 2782, RFC 6891). Pure.
//!
//! A response is untrusted: names are bounded, a reference in a name leads backwards, and aliases
//! and records have a maximum number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Type of the records that are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordType {
    /// Address of IPv4.
    A,
    /// Address of IPv6.
    Aaaa,
    /// Server of a service (RFC 2782).
    Srv,
}

/// A query for the records of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: RecordType,
}

/// The answer of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Records(Records),
    /// The name has no such records, or does not exist.
    None,
    /// The answer is too large for a datagram.
    Truncated,
    /// The server does not support the query (FORMERR, NOTIMP).
    NotSupported,
    /// The server has failed, or its answer is invalid.
    Failed(String),
}

/// Records with the smallest of their times to live, in seconds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) data: Vec<RecordData>,
    pub(crate) ttl: u32,
}

/// The value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordData {
    Address(IpAddr),
    Srv(SrvRecord),
}

/// A server of a service (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrvRecord {
    /// Priority of the server. Servers with the lowest number are used first.
    pub priority: u16,
    /// Share of the requests among servers of the same priority.
    pub weight: u16,
    /// Port of the server.
    pub port: u16,
    /// Host name of the server.
    pub target: String,
}

/// Maximum number of records that are used. Others of an answer are ignored.
pub const MAX_RECORDS: usize = 64;

/// Maximum number of aliases (CNAME) from a name to its records.
const MAX_ALIASES: usize = 8;

/// Maximum number of references in a name. Servers use one, because each leads to a whole name.
const MAX_REFERENCES: usize = 16;

/// Maximum size of a name (RFC 1035 §2.3.4).
const MAX_NAME_BYTES: usize = 255;

/// Size of a datagram that arrives in one packet everywhere (RFC 9715).
const DATAGRAM_BYTES: u16 = 1_232;

const TYPE_CNAME: u16 = 5;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;

/// Flags of a message: response, operation, truncated, recursion desired.
const QR: u16 = 1 << 15;
const OPCODE: u16 = 15 << 11;
const TC: u16 = 1 << 9;
const RD: u16 = 1 << 8;

impl RecordType {
    fn number(self) -> u16 {
        match self {
            RecordType::A => 1,
            RecordType::Aaaa => 28,
            RecordType::Srv => 33,
        }
    }
}

impl Question<'_> {
    /// Returns the query. With `has_size`, it permits answers of more than 512 bytes (EDNS).
    ///
    /// # Errors
    /// If the name is invalid.
    pub(crate) fn message(&self, id: u16, has_size: bool) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        put_numbers(&mut out, &[id, RD, 1, 0, 0, u16::from(has_size)]);
        put_name(&mut out, self.name)?;
        put_numbers(&mut out, &[self.kind.number(), CLASS_IN]);
        if has_size {
            out.push(0);
            put_numbers(&mut out, &[TYPE_OPT, DATAGRAM_BYTES, 0, 0, 0]);
        }
        Ok(out)
    }

    /// Reads a message. Returns `None` if it is not the response to this query.
    pub(crate) fn read_answer(&self, id: u16, message: &[u8]) -> Option<Answer> {
        let mut reader = MessageReader::new(message);
        let [found_id, flags, questions, answers, _, _] = reader.numbers()?;
        if found_id != id || flags & QR == 0 || flags & OPCODE != 0 {
            return None;
        }
        // Servers that cannot read the query may not repeat it (RFC 6891 §7).
        if questions == 0 && matches!(flags & 15, 1 | 4) {
            return Some(Answer::NotSupported);
        }
        if questions != 1 {
            return None;
        }
        let mut name = Vec::new();
        put_name(&mut name, self.name).ok()?;
        name.make_ascii_lowercase();
        let is_same = reader.name()? == name;
        if !is_same || reader.numbers()? != [self.kind.number(), CLASS_IN] {
            return None;
        }
        Some(match flags & 15 {
            _ if flags & TC != 0 => Answer::Truncated,
            0 => self.find(name, &mut reader, answers),
            3 => Answer::None,
            1 | 4 => Answer::NotSupported,
            2 => Answer::Failed("the server has failed (SERVFAIL)".to_owned()),
            5 => Answer::Failed("the server refuses the query (REFUSED)".to_owned()),
            code => Answer::Failed(format!("the server has failed (RCODE {code})")),
        })
    }

    /// Follows the aliases of the name to its records.
    fn find(&self, mut name: Vec<u8>, reader: &mut MessageReader<'_>, count: u16) -> Answer {
        let invalid = || Answer::Failed("the answer of the server is invalid".to_owned());
        let found = (0..count).map(|_| reader.record(self.kind)).collect::<Option<Vec<_>>>();
        let Some(found) = found else { return invalid() };
        let found: Vec<Record> = found.into_iter().flatten().collect();
        let mut ttl = u32::MAX;
        for _ in 0..=MAX_ALIASES {
            let of_name = || found.iter().filter(|record| record.name == name);
            let mut data = Vec::new();
            for record in of_name() {
                if let Value::Data(value) = &record.value
                    && data.len() < MAX_RECORDS
                {
                    ttl = ttl.min(record.ttl);
                    data.push(value.clone());
                }
            }
            if !data.is_empty() {
                return Answer::Records(Records { data, ttl });
            }
            let alias = of_name().find_map(|record| match &record.value {
                Value::Alias(target) => Some((target.clone(), record.ttl)),
                Value::Data(_) => None,
            });
            let Some((target, alias_ttl)) = alias else { return Answer::None };
            (name, ttl) = (target, ttl.min(alias_ttl));
        }
        Answer::Failed(format!("the name has more than {MAX_ALIASES} aliases"))
    }
}

/// A record of an answer.
struct Record {
    name: Vec<u8>,
    ttl: u32,
    value: Value,
}

enum Value {
    Data(RecordData),
    Alias(Vec<u8>),
}

/// Appends numbers in network byte order.
pub fn put_numbers(out: &mut Vec<u8>, numbers: &[u16]) {
    out.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
}

/// Appends a domain name.
///
/// # Errors
/// If the name is invalid or too long.
pub fn put_name(out: &mut Vec<u8>, name: &str) -> Result<(), String> {
    let begin = out.len();
    for label in name.trim_end_matches('.').split('.') {
        match u8::try_from(label.len()) {
            Ok(length @ 1..=63) => out.push(length),
            _ => return Err(format!("{name:?} is no domain name")),
        }
        out.extend(label.as_bytes());
    }
    out.push(0);
    match out.len() - begin {
        0..=MAX_NAME_BYTES => Ok(()),
        _ => Err(format!("{name:?} is too long")),
    }
}

/// Reads a message, in which names refer to earlier ones.
pub struct MessageReader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> MessageReader<'a> {
    /// Creates a reader at the start of a message.
    pub fn new(message: &'a [u8]) -> MessageReader<'a> {
        MessageReader { message, at: 0 }
    }

    /// Takes the next `count` bytes; `None` if there are fewer.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.message.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    /// Takes the next numbers in network byte order; `None` if there are fewer.
    pub fn numbers<const N: usize>(&mut self) -> Option<[u16; N]> {
        let bytes = self.take(2 * N)?;
        let mut numbers = [0; N];
        for (number, pair) in numbers.iter_mut().zip(bytes.chunks_exact(2)) {
            *number = u16::from_be_bytes([pair[0], pair[1]]);
        }
        Some(numbers)
    }

    /// Skips a name, which may end in a reference to another one (RFC 1035 §4.1.4).
    pub fn skip_name(&mut self) -> Option<()> {
        loop {
            match self.take(1)?[0] {
                0 => return Some(()),
                0xc0.. => return self.take(1).map(|_| ()),
                length => self.take(length.into())?,
            };
        }
    }

    /// Reads a name in lower case, without compression. A reference must lead to a place before the
    /// name, and before the place of an earlier reference, so that there is no loop. The number of
    /// references is limited: a message has room for a chain of thousands, and each of its names may
    /// begin there.
    fn name(&mut self) -> Option<Vec<u8>> {
        let (mut name, mut at, mut lowest) = (Vec::new(), self.at, self.at);
        let (mut end, mut references) = (None, 0);
        loop {
            match *self.message.get(at)? {
                0 => {
                    name.push(0);
                    self.at = end.unwrap_or(at + 1);
                    return (name.len() <= MAX_NAME_BYTES).then_some(name);
                }
                length @ 1..=63 => {
                    let label = self.message.get(at..at + 1 + usize::from(length))?;
                    name.extend(label.iter().map(u8::to_ascii_lowercase));
                    at += label.len();
                    if name.len() >= MAX_NAME_BYTES {
                        return None;
                    }
                }
                high @ 0xc0.. => {
                    let low = *self.message.get(at + 1)?;
                    let to = usize::from(high & 63) << 8 | usize::from(low);
                    end = end.or(Some(at + 2));
                    references += 1;
                    if to >= lowest || references > MAX_REFERENCES {
                        return None;
                    }
                    (at, lowest) = (to, to);
                }
                _ => return None,
            }
        }
    }

    /// Reads a record: `Some(None)`: a record of another type. `None`: the message is invalid.
    fn record(&mut self, kind: RecordType) -> Option<Option<Record>> {
        let name = self.name()?;
        let [found, class, high, low, length] = self.numbers()?;
        // RFC 2181 §8: a time with the highest bit set is zero.
        let ttl = u32::from(high) << 16 | u32::from(low);
        let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
        let end = self.at + usize::from(length);
        let value = match found {
            TYPE_CNAME if class == CLASS_IN => Some(Value::Alias(self.name()?)),
            found if class == CLASS_IN && found == kind.number() => {
                self.data(kind, usize::from(length))?.map(Value::Data)
            }
            _ => {
                self.take(length.into())?;
                None
            }
        };
        let is_whole = self.at == end && end <= self.message.len();
        is_whole.then(|| value.map(|value| Record { name, ttl, value }))
    }

    /// Reads the data of a record: `Some(None)` if it is of no use.
    fn data(&mut self, kind: RecordType, length: usize) -> Option<Option<RecordData>> {
        Some(match kind {
            RecordType::A => {
                let bytes: [u8; 4] = self.take(length)?.try_into().ok()?;
                Some(RecordData::Address(Ipv4Addr::from(bytes).into()))
            }
            RecordType::Aaaa => {
                let bytes: [u8; 16] = self.take(length)?.try_into().ok()?;
                Some(RecordData::Address(Ipv6Addr::from(bytes).into()))
            }
            RecordType::Srv => {
                let [priority, weight, port] = self.numbers()?;
                // The target `.` states that there is no such service.
                let target = host_name(&self.name()?).filter(|_| port > 0);
                target.map(|target| RecordData::Srv(SrvRecord { priority, weight, port, target }))
            }
        })
    }
}

/// Returns the text of a name that a host can have.
fn host_name(name: &[u8]) -> Option<String> {
    let (mut text, mut rest) = (String::new(), name);
    while let Some((&length @ 1.., behind)) = rest.split_first() {
        let (label, behind) = behind.split_at_checked(length.into())?;
        let is_permitted = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'_';
        if !label.iter().all(is_permitted) {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(str::from_utf8(label).ok()?);
        rest = behind;
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
