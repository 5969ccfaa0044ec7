//! What the name of a field means to HTTP/2, and whether name and value are sound (RFC 9113
//! §8.2). It is found out once for what goes into the table.

use crate::proto::http1::scan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    // Pseudo-fields (§8.3.1, RFC 8441 §4).
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    /// Of a response.
    Status,
    // What matters for the framing of a request.
    Host,
    ContentLength,
    Expect,
    Cookie,
    Te,
    /// It belongs to a connection (§8.2.2).
    OfConnection,
    Other,
    /// No name in lower case (§8.2.1), or a pseudo-field that nobody knows.
    Unsound,
}

/// A name, and whether the value may stand in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    pub(crate) name: Name,
    pub(crate) is_sound: bool,
}

impl Meaning {
    pub(super) fn new(name: Name, value: &[u8]) -> Meaning {
        Meaning { name, is_sound: scan::field_value(value) == value.len() }
    }
}

impl Name {
    pub(super) const fn of(name: &[u8]) -> Name {
        match name {
            b":method" => Name::Method,
            b":scheme" => Name::Scheme,
            b":authority" => Name::Authority,
            b":path" => Name::Path,
            b":protocol" => Name::Protocol,
            b":status" => Name::Status,
            b"host" => Name::Host,
            b"content-length" => Name::ContentLength,
            b"expect" => Name::Expect,
            b"cookie" => Name::Cookie,
            b"te" => Name::Te,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => Name::OfConnection,
            [] => Name::Unsound,
            _ => {
                let mut at = 0;
                while at < name.len() {
                    if !MAY_STAND[name[at] as usize] {
                        return Name::Unsound;
                    }
                    at += 1;
                }
                Name::Other
            }
        }
    }
}

/// What a token has (RFC 9110 §5.6.2), but for capitals.
static MAY_STAND: [bool; 256] = {
    let mut table = scan::letters_digits_and(b"!#$%&'*+-.^_`|~");
    let mut capital = b'A';
    while capital <= b'Z' {
        table[capital as usize] = false;
        capital += 1;
    }
    table
};
