//! The certificate of a client (mutual TLS) as upstreams and scripts get it, and the fields by
//! which other proxies pass it on. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weft::Request;
use weft::net::IpNetwork;

/// Names in lower case, and beginnings of names, by which proxies and servers describe the
/// certificate of a client: RFC 9440, the recipes for Apache, nginx and HAProxy, and the names of
/// Envoy, Traefik, AWS and Azure. A client that sends such a field claims an identity.
pub(crate) const NAME_PREFIXES: [&[u8]; 8] = [
    b"client-cert",
    b"ssl-",
    b"x-ssl-",
    b"x-client-cert",
    b"x-forwarded-client-cert",
    b"x-forwarded-tls-client-cert",
    b"x-amzn-mtls-",
    b"x-arr-clientcert",
];

/// Returns true if a field of this name describes the certificate of a client.
pub(crate) fn is_certificate_field(name: &[u8]) -> bool {
    matches!(name.first(), Some(b'c' | b'C' | b's' | b'S' | b'x' | b'X'))
        && NAME_PREFIXES.iter().any(|prefix| starts_with(name, prefix))
}

/// Returns true if a name begins with `prefix`, ignoring case.
pub(crate) fn starts_with(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Returns true if the other end of the connection is a trusted proxy. The proxy describes the
/// certificate of its client in fields, and the certificate of the connection is its own. Proxies
/// on Unix sockets are trusted like others.
pub(crate) fn is_from_trusted_proxy(request: &Request, trusted_proxies: &[IpNetwork]) -> bool {
    if trusted_proxies.is_empty() {
        return false;
    }
    let sender = request.connection_peer().address().map(|address| address.ip());
    trusted_proxies.iter().any(|network| sender.is_none_or(|it| network.contains(it)))
}

/// Formats a certificate in DER as a byte sequence of structured fields (RFC 9440 §2.1).
pub(crate) fn byte_sequence(certificate: &[u8]) -> String {
    format!(":{}:", STANDARD.encode(certificate))
}

/// Formats a certificate in DER as PEM (RFC 7468).
pub(crate) fn pem(certificate: &[u8]) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    // Base64 is ASCII, so that every position is a boundary of characters.
    let mut rest = &*encoded;
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(PEM_LINE_LENGTH));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem + "-----END CERTIFICATE-----\n"
}

/// Characters in each line of PEM but the last (RFC 7468 §2).
const PEM_LINE_LENGTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_fields_about_the_certificate() {
        for (name, expected) in [
            ("Client-Cert", true),
            ("client-cert-chain", true),
            ("X-SSL-Client-Verify", true),
            ("SSL-Client-S-DN", true),
            ("x-client-certificate", true),
            ("X-Forwarded-Client-Cert", true),
            ("X-Amzn-Mtls-Clientcert", true),
            ("Client", false),
            ("x-ssl", false),
            ("ssl_client_cert", false),
            ("cookie", false),
            ("", false),
        ] {
            assert_eq!(is_certificate_field(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn encodes_certificates() {
        assert_eq!(byte_sequence(b"\xff\xfe"), "://4=:");
        let lines = format!("{}\n{}\n", "AAAA".repeat(16), "AAAA");
        let expected = format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n");
        assert_eq!(pem(&[0; 51]), expected);
    }
}
