//! The section `[tls]`: listeners with TLS, their certificates, and certificates of clients.

mod opened; // the certificates of a plan

use std::path::PathBuf;

use serde_json::json;
use weft_config::{
    ConfigLocation, ConfigResult, CustomType, Given, Key, Located, Problem, Value, ValueKind,
    quoted, quoted_path, schema, shown_list,
};

pub(crate) use self::opened::{CHECK_INTERVAL, OpenedTls, log_reload_failure};

use super::addresses::Addresses;

/// The end of an error about a value that has no effect without certificates.
pub(super) const NEEDS_CERTIFICATES: &str =
    "needs `certificates` in [tls], which may be \"auto\", or `self_signed`";

/// Values of `[tls]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsConfig {
    pub(crate) listen: Addresses,
    pub(crate) certificates: Certificates,
    pub(crate) self_signed: bool,
    pub(crate) tickets: Option<Located<PathBuf>>,
    pub(crate) early_data: bool,
    pub(crate) client_ca: Option<Located<PathBuf>>,
    pub(crate) client_auth: ClientAuthMode,
    pub(crate) profile: TlsProfile,
}

impl TlsConfig {
    /// Returns true if there are listeners, and nothing is set about their certificates.
    pub(crate) fn lacks_certificates(&self) -> bool {
        self.listen.all().next().is_some() && self.pairs().is_empty() && !self.self_signed
    }

    /// Certificates with their keys. Empty: they are ordered, or a self-signed certificate is
    /// generated at startup.
    pub(crate) fn pairs(&self) -> &[Located<CertificatePair>] {
        match &self.certificates {
            Certificates::Automatic => &[],
            Certificates::Pairs(pairs) => pairs,
        }
    }

    /// Validates the section, and sets its default address. Returns `None` if TLS is not
    /// configured. A missing value is an error only if the configuration is complete.
    pub(crate) fn plan(
        self,
        orders_certificates: bool,
        default_listen: Option<&str>,
        is_complete: bool,
    ) -> ConfigResult<Option<TlsConfig>> {
        if let (Some(first), true) = (self.pairs().first(), self.self_signed) {
            return Err(match first.location.is_in_file() {
                true => first.problem("`self_signed` cannot be combined with `certificates`"),
                false => first.problem("--tls-self-signed cannot be combined with --tls-cert"),
            });
        }
        if self.pairs().is_empty() && !orders_certificates && !self.self_signed {
            return match self.first_without_certificate().filter(|_| is_complete) {
                None => Ok(None),
                Some(ConfigLocation::Option(option)) => Err(Problem::without_location(format!(
                    "{option} needs --tls-cert or --tls-self-signed"
                ))),
                Some(location) => Err(Problem {
                    location: location.clone(),
                    message: format!("this {NEEDS_CERTIFICATES}"),
                }),
            };
        }
        let listen = self.listen.or_default(default_listen);
        Ok(Some(TlsConfig { listen, ..self }))
    }

    /// Returns the location of the first key that has no effect without a certificate.
    fn first_without_certificate(&self) -> Option<&ConfigLocation> {
        let address = self.listen.all().next().map(|address| &address.location);
        let paths = [&self.tickets, &self.client_ca].into_iter().flatten();
        address.into_iter().chain(paths.map(|path| &path.location)).next()
    }

    /// Returns a warning about a value that has no effect.
    pub(crate) fn warning(&self) -> Option<Problem> {
        let message = match (&self.client_ca, self.client_auth) {
            (None, ClientAuthMode::Optional) => {
                "`client_auth` has no effect without `client_ca` in [tls]"
            }
            (Some(_), _) if self.early_data => {
                "`early_data` has no effect with `client_ca` in [tls]: such connections begin with \
                 a full handshake"
            }
            _ => return None,
        };
        Some(Problem::without_location(message))
    }
}

/// Certificates of the listeners of `[tls]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Certificates {
    /// Certificates that are ordered for the names of the hosts; also the default of listeners
    /// without certificates, if a host has a name.
    Automatic,
    Pairs(Vec<Located<CertificatePair>>),
}

impl Default for Certificates {
    fn default() -> Certificates {
        Certificates::Pairs(Vec::new())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificatePair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Versions and cipher suites, as in Mozilla's guidelines for servers. There is no key for the
/// versions alone: the cipher suites of each version are fixed, so that it would say the same
/// again.
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

pub(crate) static TLS: [Key<TlsConfig>; 8] = [
    Key {
        name: "listen",
        flag: "tls-listen",
        argument: "ADDR",
        help: "address to listen on with TLS (127.0.0.1:8443, if there is a certificate and no stream with `tls`)",
        kind: ValueKind::Texts(|tls, given| {
            Addresses::parse(given).map(|listen| tls.listen = listen)
        }),
        show: |tls| tls.listen.show(),
    },
    Key {
        name: "certificates",
        flag: "tls-cert",
        argument: "FILE",
        help: "certificate chain in PEM, with its private key in --tls-key FILE, in the same \
               order; selected by the server name that the client sends (SNI), otherwise the first",
        kind: ValueKind::Custom(&CERTIFICATES, |tls, given| {
            tls.certificates = read_certificates(given)?;
            Ok(())
        }),
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
            shown_list(pairs.iter().map(pair))
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
        name: "early_data",
        flag: "tls-early-data",
        argument: "",
        help: "accept requests with safe methods in the first flight of HTTP/3 (0-RTT), with the \
               field `Early-Data: 1`; others get 425",
        kind: ValueKind::Bool(|tls, switch| tls.early_data = switch),
        show: |tls| tls.early_data.to_string(),
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

/// Certificates and their private keys, or `"auto"`.
static CERTIFICATES: CustomType = CustomType {
    is_list: true,
    shape: "`\"auto\"` or list of tables",
    schema: || {
        let pair = json!({
            "type": "object",
            "properties": { "cert": schema::text(), "key": schema::text() },
            "required": ["cert", "key"],
            "additionalProperties": false,
        });
        schema::list(pair)
    },
};

fn read_certificates(given: Given<'_>) -> ConfigResult<Certificates> {
    match given {
        Given::Values([value]) if value.as_text() == Some("auto") => Ok(Certificates::Automatic),
        Given::Values(values) => {
            let pairs = values.iter().map(certificate_pairs).collect::<ConfigResult<Vec<_>>>()?;
            Ok(Certificates::Pairs(pairs.into_iter().flatten().collect()))
        }
        // Certificates and keys alternate in the arguments.
        Given::Arguments { option, arguments } => {
            let pairs = arguments.chunks_exact(2).map(|pair| {
                let [certificate, key] = [0, 1].map(|index: usize| PathBuf::from(&pair[index]));
                let location = ConfigLocation::Option(option.to_owned());
                Located { location, value: CertificatePair { certificate, key } }
            });
            Ok(Certificates::Pairs(pairs.collect()))
        }
    }
}

fn certificate_pairs(value: &Value<'_>) -> ConfigResult<Vec<Located<CertificatePair>>> {
    let expected =
        "\"auto\", or a list of certificates such as [{ cert = \"a.pem\", key = \"b.pem\" }]";
    let items = value.items().map_err(|_| value.expected(expected))?;
    items.map(|item| certificate_pair(&item).map(|pair| item.at(pair))).collect()
}

fn certificate_pair(table: &Value<'_>) -> ConfigResult<CertificatePair> {
    let expected = "{ cert = \"FILE\", key = \"FILE\" }";
    let (mut cert, mut key) = (None, None);
    for (name, value) in table.entries().map_err(|_| table.expected(expected))? {
        match &*name.value {
            "cert" => cert = Some(value.path()?.value),
            "key" => key = Some(value.path()?.value),
            other => {
                return Err(name.problem(format!("unknown key `{other}`; expected {expected}")));
            }
        }
    }
    match (cert, key) {
        (Some(certificate), Some(key)) => Ok(CertificatePair { certificate, key }),
        (None, _) => Err(table.problem(format!("`cert` is missing; expected {expected}"))),
        (_, None) => Err(table.problem(format!("`key` is missing; expected {expected}"))),
    }
}
