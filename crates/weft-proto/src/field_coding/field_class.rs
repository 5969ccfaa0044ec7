//! Classification of field names and validation of names and values (RFC 9113 §8.2). Entries of
//! the dynamic table are classified once, on insertion.

use crate::http1::scan;

/// Class of a field name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `:method` (§8.3.1).
    Method,
    /// `:scheme` (§8.3.1).
    Scheme,
    /// `:authority` (§8.3.1).
    Authority,
    /// `:path` (§8.3.1).
    Path,
    /// `:protocol` (RFC 8441 §4).
    Protocol,
    /// `:status` (§8.3.2).
    Status,
    /// `host`, which must agree with `:authority` (§8.3.1).
    Host,
    /// `content-length`, which must agree with the DATA frames (§8.1.1).
    ContentLength,
    /// `expect` (RFC 9110 §10.1.1).
    Expect,
    /// `cookie`, which may be split into several fields (§8.2.3).
    Cookie,
    /// `te`, whose only valid value is `trailers` (§8.2.2).
    Te,
    /// A connection-specific field (§8.2.2).
    ConnectionSpecific,
    /// Any other valid name.
    Other,
    /// Not a lowercase token (§8.2.1), or an unknown pseudo-header field.
    Invalid,
}

/// The class of a field's name, and the validity of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldClass {
    /// The class of the name.
    pub name: Name,
    /// Set if the value has no control characters other than HTAB (RFC 9110 §5.5).
    pub is_valid_value: bool,
}

impl FieldClass {
    pub(crate) fn new(name: Name, value: &[u8]) -> FieldClass {
        FieldClass { name, is_valid_value: scan::field_value(value) == value.len() }
    }
}

impl Name {
    pub(crate) const fn of(name: &[u8]) -> Name {
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
            | b"upgrade" => Name::ConnectionSpecific,
            [] => Name::Invalid,
            _ => {
                let mut at = 0;
                while at < name.len() {
                    if !NAME_BYTES[name[at] as usize] {
                        return Name::Invalid;
                    }
                    at += 1;
                }
                Name::Other
            }
        }
    }
}

/// The bytes of a token (RFC 9110 §5.6.2) except uppercase letters.
static NAME_BYTES: [bool; 256] = {
    let mut table = scan::letters_digits_and(b"!#$%&'*+-.^_`|~");
    let mut capital = b'A';
    while capital <= b'Z' {
        table[capital as usize] = false;
        capital += 1;
    }
    table
};
