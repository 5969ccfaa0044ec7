//! Messages of dynamic updates (RFC 2136). Pure.

use weft_upstream::dns::message::{MessageReader, put_name, put_numbers};

use super::Change;
use super::tsig::{TYPE_TSIG, TsigKey};

/// OPCODE of an update, shifted to its position in the flags.
const UPDATE: u16 = 5 << 11;
/// Flag of a response.
const QR: u16 = 1 << 15;

const TYPE_SOA: u16 = 6;
const TYPE_TXT: u16 = 16;
const CLASS_IN: u16 = 1;
/// CLASS of a record that is to be removed (RFC 2136 §2.5.4).
const CLASS_NONE: u16 = 254;

/// Seconds for which resolvers may cache the record of a validation.
const TTL: u32 = 60;

/// Change of a TXT record.
pub(super) struct Update<'a> {
    pub(super) change: Change,
    pub(super) name: &'a str,
    pub(super) value: &'a str,
}

/// Response of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The server is not authoritative for the zone, or the name is in another one.
    OtherZone,
    Refused(String),
}

impl Update<'_> {
    /// Returns the message for a server, signed at `time`.
    ///
    /// # Errors
    /// If a name or the value is too long.
    pub(super) fn signed_message(
        &self,
        zone: &str,
        key: &TsigKey,
        id: u16,
        time: u64,
    ) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        // One zone, no prerequisite, one update, no additional record.
        put_numbers(&mut out, &[id, UPDATE, 1, 0, 1, 0]);
        put_name(&mut out, zone)?;
        put_numbers(&mut out, &[TYPE_SOA, CLASS_IN]);
        put_name(&mut out, self.name)?;
        let (class, ttl) = match self.change {
            Change::Add => (CLASS_IN, TTL),
            Change::Remove => (CLASS_NONE, 0),
        };
        put_numbers(&mut out, &[TYPE_TXT, class]);
        out.extend(ttl.to_be_bytes());
        let length = u8::try_from(self.value.len()).map_err(|_| "the value is too long")?;
        put_numbers(&mut out, &[u16::from(length) + 1]);
        out.push(length);
        out.extend(self.value.as_bytes());
        key.sign(&mut out, id, time)?;
        Ok(out)
    }
}

/// Parses the response to the message `id`; `None` if it is not valid.
pub(super) fn parse_response(response: &[u8], id: u16) -> Option<Outcome> {
    let mut reader = MessageReader::new(response);
    let [found, flags, zones, prerequisites, updates, additional] = reader.numbers()?;
    if found != id || flags & QR == 0 {
        return None;
    }
    for _ in 0..zones {
        reader.skip_name()?;
        reader.take(4)?;
    }
    let mut tsig_error = 0;
    for _ in 0..[prerequisites, updates, additional].into_iter().map(u32::from).sum() {
        reader.skip_name()?;
        let [kind, _class, _ttl_high, _ttl_low, length] = reader.numbers()?;
        let data = reader.take(length.into())?;
        if kind == TYPE_TSIG {
            tsig_error = tsig_error_of(data)?;
        }
    }
    Some(match (flags & 15, tsig_error) {
        (0, 0) => Outcome::Done,
        (_, 16) => Outcome::Refused("BADSIG: the secret of the key is another one".to_owned()),
        (_, 17) => Outcome::Refused("BADKEY: the server has no such key".to_owned()),
        (_, 18) => Outcome::Refused("BADTIME: the clocks differ too much".to_owned()),
        (9 | 10, 0) => Outcome::OtherZone,
        (5, 0) => Outcome::Refused("REFUSED: the key has no permission".to_owned()),
        (code, error) => Outcome::Refused(format!("RCODE {code}, TSIG error {error}")),
    })
}

/// Returns the error in the data of a TSIG record (RFC 8945 §4.2).
fn tsig_error_of(data: &[u8]) -> Option<u16> {
    let mut reader = MessageReader::new(data);
    reader.skip_name()?;
    // The time, and the permitted difference.
    reader.take(8)?;
    let [length] = reader.numbers()?;
    reader.take(length.into())?;
    let [_id, error] = reader.numbers()?;
    Some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    /// The messages of dnspython for the same change, without compression.
    #[test]
    fn messages_are_those_of_another_implementation() {
        for (change, expected) in [
            (
                Change::Add,
                concat!(
                    "123428000001000000010001",
                    "076578616d706c65036f72670000060001",
                    "0f5f61636d652d6368616c6c656e6765076578616d706c65036f726700",
                    "001000010000003c00020176",
                    "0477656674076578616d706c650000fa00ff00000000003d",
                    "0b686d61632d7368613235360000006553f100012c",
                    "0020b39f4f34acb8739b35debc214b51e4f6153f8b290b1af318109aa03cbe3fefaa",
                    "123400000000",
                ),
            ),
            (
                Change::Remove,
                concat!(
                    "123428000001000000010001",
                    "076578616d706c65036f72670000060001",
                    "0f5f61636d652d6368616c6c656e6765076578616d706c65036f726700",
                    "001000fe0000000000020176",
                    "0477656674076578616d706c650000fa00ff00000000003d",
                    "0b686d61632d7368613235360000006553f100012c",
                    "002070ba9baa21b18aa0e48879e0f27be9dd12535173c092ad14160908ae9ccd42ae",
                    "123400000000",
                ),
            ),
        ] {
            let update = Update { change, name: "_acme-challenge.example.org", value: "v" };
            let key = TsigKey::sample();
            let message = update.signed_message("example.org", &key, 0x1234, 1_700_000_000);
            assert_eq!(hex(&message.unwrap()), expected, "{change:?}");
        }
    }

    #[test]
    fn refuses_names_that_are_too_long() {
        let key = TsigKey::sample();
        let (long, longer) = (["a.a."; 64].concat(), "a".repeat(64));
        for name in ["", "a..b", &long, &longer] {
            let update = Update { change: Change::Add, name, value: "v" };
            let reason = update.signed_message("example.org", &key, 1, 1).unwrap_err();
            assert!(reason.contains("domain name") || reason.contains("too long"), "{reason}");
        }
    }

    #[test]
    fn parses_responses() {
        // The zone, and a TSIG record with an error behind the reference to a name.
        let zone = "076578616d706c65036f72670000060001";
        let tsig = |error: &str| {
            let algorithm = "0b686d61632d73686132353600";
            let data = [algorithm, "00006553f100012c0000", "1234", error, "0000"].concat();
            format!("c00c00fa00ff00000000{:04x}{data}", data.len() / 2)
        };
        let refused = |reason: &str| Some(Outcome::Refused(reason.to_owned()));
        for (response, expected) in [
            ("1234a8000001000000000000".to_owned() + zone, Some(Outcome::Done)),
            ("1234a8000000000000000000".to_owned(), Some(Outcome::Done)),
            ("1234a8090000000000000000".to_owned(), Some(Outcome::OtherZone)),
            ("1234a80a0000000000000000".to_owned(), Some(Outcome::OtherZone)),
            ("1234a8050000000000000000".to_owned(), refused("REFUSED: the key has no permission")),
            ("1234a8020000000000000000".to_owned(), refused("RCODE 2, TSIG error 0")),
            (
                ["1234a8090001000000000001", zone, &tsig("0011")].concat(),
                refused("BADKEY: the server has no such key"),
            ),
            (
                ["1234a8090001000000000001", zone, &tsig("0010")].concat(),
                refused("BADSIG: the secret of the key is another one"),
            ),
            (["1234a8000001000000000001", zone, &tsig("0000")].concat(), Some(Outcome::Done)),
            // Another ID, a request, and less than the counts announce.
            ("1235a8000000000000000000".to_owned(), None),
            ("123428000000000000000000".to_owned(), None),
            ("1234a8000001000000000000".to_owned(), None),
            ("1234a800000000000000ffff".to_owned(), None),
            ("1234".to_owned(), None),
        ] {
            assert_eq!(parse_response(&bytes(&response), 0x1234), expected, "{response}");
        }
    }
}
