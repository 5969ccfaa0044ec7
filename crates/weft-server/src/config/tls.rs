//! The keys of `[tls]`.

use std::path::PathBuf;

use super::key::{CertificatePair, Certificates, Key, ValueKind};
use super::location::Located;
use super::quoting::{list, quoted, quoted_addresses, quoted_path};
use super::top::addresses;

/// Values of `[tls]`.
#[derive(Debug, Default)]
pub(crate) struct TlsConfig {
    pub(crate) listen: Vec<Located<String>>,
    pub(crate) certificates: Certificates,
    pub(crate) self_signed: bool,
    pub(crate) tickets: Option<Located<PathBuf>>,
    pub(crate) client_ca: Option<Located<PathBuf>>,
    pub(crate) client_auth: ClientAuthMode,
    pub(crate) profile: TlsProfile,
}

impl TlsConfig {
    /// Returns true if there are listeners, and nothing is set about their certificates.
    pub(crate) fn lacks_certificates(&self) -> bool {
        let has_none = matches!(&self.certificates, Certificates::Pairs(pairs) if pairs.is_empty());
        !self.listen.is_empty() && has_none && !self.self_signed
    }
}

/// Versions and cipher suites, as in Mozilla's guidelines for servers. There is no key for the versions
/// alone: the cipher suites of each version are fixed, so that it would say the same again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TlsProfile {
    /// TLS 1.3 only.
    Modern,
    /// TLS 1.3, and TLS 1.2 with authenticated encryption and forward secrecy.
    #[default]
    Intermediate,
}

/// Treatment of clients without a certificate, if certificates are requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClientAuthMode {
    #[default]
    Required,
    Optional,
}

pub(crate) static TLS: [Key<TlsConfig>; 7] = [
    Key {
        name: "listen",
        flag: "tls-listen",
        argument: "ADDR",
        help: "address to listen on with TLS (127.0.0.1:8443, if there is a certificate and no stream with `tls`)",
        kind: ValueKind::Texts(|tls, given| addresses(given).map(|listen| tls.listen = listen)),
        show: |tls| quoted_addresses(&tls.listen),
    },
    Key {
        name: "certificates",
        flag: "tls-cert",
        argument: "FILE",
        help: "certificate chain in PEM, with its private key in --tls-key FILE, in the same \
               order; selected by the server name that the client sends (SNI), otherwise the first",
        kind: ValueKind::CertificatePairs(|tls, certificates| tls.certificates = certificates),
        show: |tls| {
            let pairs = match &tls.certificates {
                Certificates::Automatic => return quoted("auto"),
                Certificates::Pairs(pairs) => pairs,
            };
            let pair = |Located { value: CertificatePair { certificate, key }, .. }: &Located<
                CertificatePair,
            >| {
                let [certificate, key] =
                    [certificate, key].map(|path| quoted(&path.to_string_lossy()));
                format!("{{ cert = {certificate}, key = {key} }}")
            };
            list(pairs.iter().map(pair))
        },
    },
    Key {
        name: "self_signed",
        flag: "tls-self-signed",
        argument: "",
        help: "generate a self-signed certificate for this machine, which clients do not trust",
        kind: ValueKind::Bool(|tls, switch| tls.self_signed = switch),
        show: |tls| tls.self_signed.to_string(),
    },
    Key {
        name: "tickets",
        flag: "tls-tickets",
        argument: "FILE",
        help: "keys for session tickets, 48 bytes each: the first encrypts, all decrypt",
        kind: ValueKind::Path(|tls, path| tls.tickets = Some(path)),
        show: |tls| quoted_path(tls.tickets.as_ref()),
    },
    Key {
        name: "client_ca",
        flag: "tls-client-ca",
        argument: "FILE",
        help: "CA certificates in PEM: clients must present a certificate that one of them has \
               signed",
        kind: ValueKind::Path(|tls, path| tls.client_ca = Some(path)),
        show: |tls| quoted_path(tls.client_ca.as_ref()),
    },
    Key {
        name: "client_auth",
        flag: "tls-client-auth",
        argument: "MODE",
        help: "clients without a certificate, if there is a `client_ca`: required refuses their \
               connections, optional leaves that to `client_cert_required` of each route",
        kind: ValueKind::Choice(&["required", "optional"], |tls, mode| {
            tls.client_auth = match mode {
                "optional" => ClientAuthMode::Optional,
                _ => ClientAuthMode::Required,
            };
        }),
        show: |tls| {
            quoted(match tls.client_auth {
                ClientAuthMode::Required => "required",
                ClientAuthMode::Optional => "optional",
            })
        },
    },
    Key {
        name: "profile",
        flag: "tls-profile",
        argument: "NAME",
        help: "versions and cipher suites in Mozilla's guidelines: intermediate (TLS 1.3, and TLS 1.2 \
               with ECDHE and AEAD) or modern (TLS 1.3)",
        kind: ValueKind::Choice(&["intermediate", "modern"], |tls, profile| {
            tls.profile = match profile {
                "modern" => TlsProfile::Modern,
                _ => TlsProfile::Intermediate,
            };
        }),
        show: |tls| {
            quoted(match tls.profile {
                TlsProfile::Modern => "modern",
                TlsProfile::Intermediate => "intermediate",
            })
        },
    },
];
