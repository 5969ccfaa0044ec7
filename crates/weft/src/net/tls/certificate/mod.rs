//! Parts of certificates in DER (RFC 5280 §4.1): validity, serial number, and names as text.
//!
//! Nothing is verified. The handshake has verified a certificate of
//! [`TlsSession::peer_certificates`](crate::net::TlsSession); a certificate of another origin may
//! have any contents. Functions return `None` for what they cannot parse.

mod der; // elements of the encoding
mod name; // distinguished names as text

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::der::element;

/// Times between which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub not_before: SystemTime,
    /// Last second.
    pub not_after: SystemTime,
}

const BOOLEAN: u8 = 0x01;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// OID of the extension with the key of the issuer (RFC 5280 §4.2.1.1): 2.5.29.35.
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];

/// Returns the validity of a certificate.
pub fn validity(certificate: &[u8]) -> Option<Validity> {
    let (_, fields) = serial_and_rest(certificate)?;
    // The algorithm and the issuer.
    let fields = element(element(fields)?.2)?.2;
    let (SEQUENCE, times, _) = element(fields)? else { return None };
    let (tag, not_before, rest) = element(times)?;
    let not_before = time(tag, not_before)?;
    let (tag, not_after, _) = element(rest)?;
    Some(Validity { not_before, not_after: time(tag, not_after)? })
}

/// Returns the identifier of the issuer's key, and the serial number (RFC 9773 §4.1).
pub fn issuer_and_serial(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (serial, mut fields) = serial_and_rest(certificate)?;
    let mut list = loop {
        let (tag, contents, rest) = element(fields)?;
        match tag {
            EXTENSIONS => break element(contents)?.1,
            _ => fields = rest,
        }
    };
    loop {
        let (_, extension, rest) = element(list)?;
        let (_, name, mut value) = element(extension)?;
        if name == AUTHORITY_KEY_IDENTIFIER {
            if value.first() == Some(&BOOLEAN) {
                value = element(value)?.2;
            }
            let (_, identifiers, _) = element(element(value)?.1)?;
            return Some((element(identifiers)?.1, serial));
        }
        list = rest;
    }
}

/// Returns the name of the subject as text (RFC 4514), in ASCII.
pub fn subject(certificate: &[u8]) -> Option<String> {
    let (_, fields) = serial_and_rest(certificate)?;
    // The algorithm, the issuer and the validity.
    let fields = element(element(element(fields)?.2)?.2)?.2;
    name::to_text(element(fields)?.1)
}

/// Returns the public key with its algorithm, as it is encoded (SubjectPublicKeyInfo).
pub fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let (_, fields) = serial_and_rest(certificate)?;
    // The algorithm, the issuer, the validity and the subject.
    let fields = element(element(element(element(fields)?.2)?.2)?.2)?.2;
    let (SEQUENCE, _, rest) = element(fields)? else { return None };
    Some(&fields[..fields.len() - rest.len()])
}

/// Returns the name of the issuer as text (RFC 4514), in ASCII.
pub fn issuer(certificate: &[u8]) -> Option<String> {
    let (_, fields) = serial_and_rest(certificate)?;
    // The algorithm.
    name::to_text(element(element(fields)?.2)?.1)
}

/// Returns the serial number in hexadecimal digits.
pub fn serial_number(certificate: &[u8]) -> Option<String> {
    let (serial, _) = serial_and_rest(certificate)?;
    // A leading zero makes a number positive.
    let digits = match serial {
        [0, digits @ ..] if !digits.is_empty() => digits,
        digits => digits,
    };
    Some(digits.iter().map(|byte| format!("{byte:02X}")).collect())
}

/// Returns the serial number, and the fields behind it.
fn serial_and_rest(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    let (_, serial, rest) = element(fields)?;
    Some((serial, rest))
}

/// Parses `YYMMDDHHMMSSZ` (UTCTime, years from 1950 to 2049) or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let digits = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, at) = match tag {
        UTC_TIME => {
            (digits(0..2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2)
        }
        _ => (digits(0..4)?, 4),
    };
    let field = |number: usize| digits(at + 2 * number..at + 2 * number + 2);
    let (month, day) = (field(0)?, field(1)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970 of the proleptic Gregorian calendar; the year begins in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1;
    let seconds = field(2)? * 3_600 + field(3)? * 60 + field(4)?;
    // 719,468 days from the first of March of the year 0.
    let since_1970 = days.saturating_sub(719_468) * 86_400 + seconds;
    Some(UNIX_EPOCH + Duration::from_secs(since_1970))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_times() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229235959Z", Some(951_868_799)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (0x18, "20500101000000Z", Some(2_524_608_000)),
            (0x18, "20240301000000Z", Some(1_709_251_200)),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "700101000000", None),
        ] {
            let expected = expected.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(time(tag, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn reads_the_validity_of_certificates() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 2);
        params.not_after = rcgen::date_time_ymd(2051, 12, 31);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let found = validity(certificate.der()).unwrap();
        assert_eq!((found.not_before, found.not_after), (at(1_577_923_200), at(2_587_593_600)));
        for length in 0..certificate.der().len() {
            assert!(issuer_and_serial(&certificate.der()[..length]).is_none(), "{length}");
        }
        assert!(validity(&certificate.der()[..40]).is_none());
        assert!(validity(b"").is_none());
    }

    #[test]
    fn identifies_certificates_by_issuer_and_serial() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority.key_identifier_method = rcgen::KeyIdMethod::PreSpecified(vec![1, 2, 3]);
        let authority = rcgen::Issuer::new(authority, &key);
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.serial_number = Some(rcgen::SerialNumber::from(vec![0x87, 0x65]));
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &authority).unwrap();
        let expected = Some((&[1, 2, 3][..], &[0, 0x87, 0x65][..]));
        assert_eq!(issuer_and_serial(certificate.der()), expected);
        params.use_authority_key_identifier_extension = false;
        let certificate = params.signed_by(&key, &authority).unwrap();
        assert_eq!(issuer_and_serial(certificate.der()), None);
    }

    #[test]
    fn reads_names_and_serial_number() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.distinguished_name.push(rcgen::DnType::CommonName, "An Authority");
        let authority = rcgen::Issuer::new(authority, &key);
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.serial_number = Some(rcgen::SerialNumber::from(vec![0x87, 0x05]));
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Smith, Sons");
        params.distinguished_name.push(rcgen::DnType::CommonName, "Zoë");
        let certificate = params.signed_by(&key, &authority).unwrap();
        let der = certificate.der();
        assert_eq!(subject(der).unwrap(), "CN=Zo\\C3\\AB,O=Smith\\, Sons");
        assert_eq!(issuer(der).unwrap(), "CN=An Authority");
        assert_eq!(serial_number(der).unwrap(), "8705");
        for length in 0..der.len() {
            assert!(subject(&der[..length]).is_none(), "{length}");
        }
    }
}
