//! The keys before the first section, of `[tls]` and of `[files]`. The keys of `[files]` are also
//! valid in the table of a route with `files`.

use std::path::PathBuf;
use std::time::Duration;

use weft::{Address, DirectorySettings, HeaderName, HeaderRule, HeaderValue, Network, Symlinks};

use super::key::{CertificatePair, Certificates, Key, ValueKind};
use super::limits::{limit, networks};
use super::location::{ConfigResult, Located};
use super::units::{show_size, show_time};
use crate::apps::spool::BufferSpaceLimits;

/// Values of the keys before the first section.
#[derive(Debug)]
pub(crate) struct TopConfig {
    pub(crate) listen: Vec<Located<String>>,
    /// `None`: one per CPU.
    pub(crate) workers: Option<usize>,
    pub(crate) defer_accept: bool,
    pub(crate) drain_timeout: Duration,
    pub(crate) retire_timeout: Duration,
    pub(crate) max_buffer_bytes: u64,
    pub(crate) max_buffer_bytes_per_client: u64,
    pub(crate) max_temp_bytes: u64,
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) client_ip_header: HeaderName,
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) umask: Option<Located<String>>,
    pub(crate) pid_file: Option<Located<PathBuf>>,
}

impl Default for TopConfig {
    fn default() -> TopConfig {
        let space = BufferSpaceLimits::default();
        TopConfig {
            listen: Vec::new(),
            workers: None,
            defer_accept: true,
            drain_timeout: Duration::from_secs(10),
            retire_timeout: Duration::from_secs(3_600),
            max_buffer_bytes: space.memory_bytes,
            max_buffer_bytes_per_client: space.memory_bytes_per_client,
            max_temp_bytes: space.disk_bytes,
            trusted_proxies: Vec::new(),
            client_ip_header: HeaderName::from_static("x-forwarded-for"),
            user: None,
            group: None,
            umask: None,
            pid_file: None,
        }
    }
}

pub(crate) static TOP: [Key<TopConfig>; 15] = [
    Key {
        name: "include",
        flag: "",
        argument: "",
        help: "further files, or patterns such as sites/*.toml",
        // The files are read before their keys.
        kind: ValueKind::Texts(|_, _| Ok(())),
        show: |_| String::new(),
    },
    Key {
        name: "listen",
        flag: "listen",
        argument: "ADDR",
        help: "address to listen on: host:port, :port, [v6]:port or unix:PATH (127.0.0.1:8080, or \
               none with TLS)",
        kind: ValueKind::Texts(|top, given| addresses(given).map(|listen| top.listen = listen)),
        show: |top| quoted_addresses(&top.listen),
    },
    Key {
        name: "workers",
        flag: "workers",
        argument: "N",
        help: "number of worker threads, each with an event loop (one per CPU)",
        kind: ValueKind::Count(1..=1_024, |top, count| top.workers = Some(count as usize)),
        show: |top| top.workers.map_or_else(String::new, |count| count.to_string()),
    },
    limit!(
        defer_accept,
        "defer-accept",
        switch,
        "accept a connection when its first bytes have arrived, or after a second \
         (TCP_DEFER_ACCEPT)"
    ),
    Key {
        name: "drain_timeout",
        flag: "drain-timeout",
        argument: "TIME",
        help: "maximum time for requests in flight to complete at a stop (SIGTERM, SIGINT)",
        kind: ValueKind::Time(|top, time| top.drain_timeout = time),
        show: |top| quoted_time(top.drain_timeout),
    },
    Key {
        name: "retire_timeout",
        flag: "retire-timeout",
        argument: "TIME",
        help: "maximum time for requests in flight to complete after an upgrade (SIGUSR2)",
        kind: ValueKind::Time(|top, time| top.retire_timeout = time),
        show: |top| quoted_time(top.retire_timeout),
    },
    limit!(max_buffer_bytes, "max-buffer-bytes", size 0..=u64::MAX,
        "maximum memory of all buffered bodies together; more is stored in temporary files"),
    limit!(max_buffer_bytes_per_client, "max-buffer-bytes-per-client", size 0..=u64::MAX,
        "maximum memory of the buffered bodies of one client address, or /64 of IPv6; more is stored \
         in temporary files"),
    limit!(max_temp_bytes, "max-temp-bytes", size 0..=u64::MAX,
        "maximum size of all temporary files of buffered bodies together, of which one client may \
         have half; more is streamed"),
    Key {
        name: "trusted_proxies",
        flag: "trusted-proxies",
        argument: "NETWORK",
        help: "proxies in front of the server that tell the address of the client in \
               `client_ip_header`, for logs, rules, limits and applications",
        kind: ValueKind::Texts(|top, texts| {
            networks(texts).map(|proxies| top.trusted_proxies = proxies)
        }),
        show: |top| quoted_list(top.trusted_proxies.iter().map(ToString::to_string)),
    },
    Key {
        name: "client_ip_header",
        flag: "client-ip-header",
        argument: "NAME",
        help: "field in which all `trusted_proxies` send the address of the client: \
               X-Forwarded-For, Forwarded, or another with one address or a list",
        kind: ValueKind::Text(|top, text| {
            let name = text.value.parse().map_err(|_| {
                text.problem(format!("expected the name of a field, found {:?}", text.value))
            });
            name.map(|name| top.client_ip_header = name)
        }),
        show: |top| quoted(top.client_ip_header.as_str()),
    },
    Key {
        name: "user",
        flag: "user",
        argument: "NAME",
        help: "user to run as after the sockets are bound, with the groups of that user",
        kind: ValueKind::Text(|top, name| {
            top.user = Some(name.value);
            Ok(())
        }),
        show: |top| top.user.as_ref().map_or_else(String::new, |name| quoted(name)),
    },
    Key {
        name: "group",
        flag: "group",
        argument: "NAME",
        help: "group to run as (the primary group of the user)",
        kind: ValueKind::Text(|top, name| {
            top.group = Some(name.value);
            Ok(())
        }),
        show: |top| top.group.as_ref().map_or_else(String::new, |name| quoted(name)),
    },
    Key {
        name: "umask",
        flag: "umask",
        argument: "MASK",
        help: "umask for files that the server creates, in octal, such as 027",
        kind: ValueKind::Text(|top, mask| {
            top.umask = Some(mask);
            Ok(())
        }),
        show: |top| top.umask.as_ref().map_or_else(String::new, |mask| quoted(&mask.value)),
    },
    Key {
        name: "pid_file",
        flag: "pid-file",
        argument: "FILE",
        help: "file for the PID of the process",
        kind: ValueKind::Path(|top, path| top.pid_file = Some(path)),
        show: |top| quoted_path(top.pid_file.as_ref()),
    },
];

/// Values of `[tls]`.
#[derive(Debug, Default)]
pub(crate) struct TlsConfig {
    pub(crate) listen: Vec<Located<String>>,
    pub(crate) certificates: Vec<Located<CertificatePair>>,
    /// Orders certificates for the names of the hosts.
    pub(crate) is_automatic: bool,
    pub(crate) self_signed: bool,
    pub(crate) tickets: Option<Located<PathBuf>>,
    pub(crate) client_ca: Option<Located<PathBuf>>,
    pub(crate) client_auth: ClientAuthMode,
    /// Rejects TLS versions before 1.3.
    pub(crate) only_1_3: bool,
    pub(crate) profile: TlsProfile,
}

/// Versions and cipher suites, as in Mozilla's guidelines for servers.
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
        help: "address to listen on with TLS (127.0.0.1:8443, if there is a certificate)",
        kind: ValueKind::Texts(|tls, given| addresses(given).map(|listen| tls.listen = listen)),
        show: |tls| quoted_addresses(&tls.listen),
    },
    Key {
        name: "certificates",
        flag: "tls-cert",
        argument: "FILE",
        help: "certificate chain in PEM, with its private key in --tls-key FILE, in the same \
               order; selected by the server name that the client sends (SNI), otherwise the first",
        kind: ValueKind::CertificatePairs(|tls, certificates| match certificates {
            Certificates::Automatic => tls.is_automatic = true,
            Certificates::Pairs(pairs) => tls.certificates = pairs,
        }),
        show: |tls| {
            if tls.is_automatic {
                return quoted("auto");
            }
            let pair = |Located { value: CertificatePair { certificate, key }, .. }: &Located<
                CertificatePair,
            >| {
                let [certificate, key] =
                    [certificate, key].map(|path| quoted(&path.to_string_lossy()));
                format!("{{ cert = {certificate}, key = {key} }}")
            };
            list(tls.certificates.iter().map(pair))
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
    Key {
        name: "min_version",
        flag: "tls-min-version",
        argument: "VERSION",
        help: "minimum TLS version, if it is higher than that of `profile`: 1.2 or 1.3",
        kind: ValueKind::Choice(&["1.2", "1.3"], |tls, version| tls.only_1_3 = version == "1.3"),
        show: |tls| quoted(if tls.only_1_3 { "1.3" } else { "1.2" }),
    },
];

/// Values of `[files]` or of a route with `files`. `None`: not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FilesConfig {
    pub(crate) index: Option<Vec<String>>,
    pub(crate) list: Option<bool>,
    pub(crate) list_title: Option<String>,
    pub(crate) fallback: Option<String>,
    pub(crate) cache: Option<Vec<Rule>>,
    pub(crate) languages: Option<Vec<String>>,
    pub(crate) compress: Option<bool>,
    /// Files are sent as they are, whatever `compress` is.
    pub(crate) is_uncoded: bool,
    pub(crate) links: Option<Symlinks>,
    pub(crate) headers: Option<Vec<Rule>>,
}

/// A header rule, with its text in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) text: String,
    pub(crate) rule: HeaderRule,
}

pub(crate) static FILES: [Key<FilesConfig>; 9] = [
    Key {
        name: "index",
        flag: "index",
        argument: "NAME",
        help: "index file of a directory; of several the first that exists",
        kind: ValueKind::Texts(|files, names| {
            files.index = Some(values(names));
            Ok(())
        }),
        show: |files| {
            files.index.as_ref().map_or_else(String::new, |names| quoted_list(names.iter()))
        },
    },
    Key {
        name: "list",
        flag: "list",
        argument: "",
        help: "list directories without an index file",
        kind: ValueKind::Bool(|files, switch| files.list = Some(switch)),
        show: |files| files.list.map_or_else(String::new, |list| list.to_string()),
    },
    Key {
        name: "list_title",
        flag: "list-title",
        argument: "TEXT",
        help: "name of the directory in the titles of its listings",
        kind: ValueKind::Text(|files, title| {
            files.list_title = Some(title.value);
            Ok(())
        }),
        show: |files| files.list_title.as_ref().map_or_else(String::new, |title| quoted(title)),
    },
    Key {
        name: "fallback",
        flag: "spa",
        argument: "FILE",
        help: "file to serve for paths that do not exist, for single-page applications",
        kind: ValueKind::Text(|files, path| {
            files.fallback = Some(path.value);
            Ok(())
        }),
        show: |files| files.fallback.as_ref().map_or_else(String::new, |path| quoted(path)),
    },
    Key {
        name: "cache",
        flag: "cache",
        argument: "RULE",
        help: "value of Cache-Control: a time (90s, 5m, 1h, 7d), immutable, no-cache or any other \
               value; for some files: '*.css=1h', '/assets/**=immutable'; the last rule that \
               matches applies",
        kind: ValueKind::Rules(|files, texts| {
            files.cache = Some(rules(texts, |text| {
                HeaderRule::cache(text).map_err(|error| error.reason().to_owned())
            })?);
            Ok(())
        }),
        show: |files| quoted_rules(files.cache.as_ref()),
    },
    Key {
        name: "languages",
        flag: "language",
        argument: "TAG",
        help: "language of files with a name such as about.html.TAG",
        kind: ValueKind::Texts(|files, tags| {
            files.languages = Some(values(tags));
            Ok(())
        }),
        show: |files| {
            files.languages.as_ref().map_or_else(String::new, |tags| quoted_list(tags.iter()))
        },
    },
    Key {
        name: "compress",
        flag: "compress",
        argument: "",
        help: "compress text files for clients that accept it; precompressed files (.br .zst .gz) \
               are served in either case",
        kind: ValueKind::Bool(|files, switch| files.compress = Some(switch)),
        show: |files| files.compress.map_or_else(String::new, |compress| compress.to_string()),
    },
    Key {
        name: "links",
        flag: "links",
        argument: "WHERE",
        help: "symbolic links to follow: those to targets inside the directory, anywhere, or never",
        kind: ValueKind::Choice(&["inside", "anywhere", "never"], |files, choice| {
            files.links = Some(match choice {
                "anywhere" => Symlinks::Anywhere,
                "never" => Symlinks::Never,
                _ => Symlinks::Inside,
            });
        }),
        show: |files| match files.links {
            None => String::new(),
            Some(Symlinks::Inside) => quoted("inside"),
            Some(Symlinks::Anywhere) => quoted("anywhere"),
            Some(Symlinks::Never) => quoted("never"),
        },
    },
    Key {
        name: "headers",
        flag: "header",
        argument: "FIELD",
        help: "response header field: 'NAME: VALUE'; for some files: '*.html=NAME: VALUE'",
        kind: ValueKind::Fields(|files, texts| {
            files.headers = Some(rules(texts, field)?);
            Ok(())
        }),
        show: |files| quoted_rules(files.headers.as_ref()),
    },
];

impl FilesConfig {
    /// The defaults of [`DirectorySettings`].
    pub(crate) fn defaults() -> FilesConfig {
        let DirectorySettings {
            index,
            listing,
            listing_title,
            fallback,
            languages,
            compress,
            symlinks,
            ..
        } = DirectorySettings::default();
        FilesConfig {
            index: Some(index),
            list: Some(listing),
            list_title: listing_title,
            fallback,
            cache: Some(Vec::new()),
            languages: Some(languages),
            compress: Some(compress),
            is_uncoded: false,
            links: Some(symlinks),
            headers: Some(Vec::new()),
        }
    }

    /// Takes values that are not set from `defaults`.
    pub(crate) fn or(self, defaults: &FilesConfig) -> FilesConfig {
        let defaults = defaults.clone();
        FilesConfig {
            index: self.index.or(defaults.index),
            list: self.list.or(defaults.list),
            list_title: self.list_title.or(defaults.list_title),
            fallback: self.fallback.or(defaults.fallback),
            cache: self.cache.or(defaults.cache),
            languages: self.languages.or(defaults.languages),
            compress: self.compress.or(defaults.compress),
            is_uncoded: self.is_uncoded || defaults.is_uncoded,
            links: self.links.or(defaults.links),
            headers: self.headers.or(defaults.headers),
        }
    }
}

/// Fields that the engine sets itself.
const ENGINE_FIELDS: [HeaderName; 5] = [
    weft::header::CONNECTION,
    weft::header::CONTENT_LENGTH,
    weft::header::DATE,
    weft::header::SERVER,
    weft::header::TRANSFER_ENCODING,
];

/// Returns true if the engine sets the field itself.
pub(super) fn engine_sets(name: &HeaderName) -> bool {
    ENGINE_FIELDS.contains(name)
}

/// `NAME: VALUE` or `PATTERN=NAME: VALUE`.
fn field(text: &str) -> Result<HeaderRule, String> {
    let invalid = || format!("expected NAME: VALUE or PATTERN=NAME: VALUE, found {text:?}");
    let (name, value) = text.split_once(':').ok_or_else(invalid)?;
    let (pattern, name) = name.rsplit_once('=').unwrap_or(("*", name));
    let name: HeaderName = name.trim().parse().map_err(|_| invalid())?;
    if engine_sets(&name) {
        return Err(format!("the server sets {name} itself"));
    }
    let value = HeaderValue::from_str(value.trim());
    let value =
        value.map_err(|_| format!("the value of {name} has a byte that no field can have"))?;
    Ok(HeaderRule::new(pattern, name, value))
}

fn rules(
    texts: Vec<Located<String>>,
    parse: impl Fn(&str) -> Result<HeaderRule, String>,
) -> ConfigResult<Vec<Rule>> {
    let rule = |text: Located<String>| match parse(&text.value) {
        Ok(rule) => Ok(Rule { text: text.value, rule }),
        Err(message) => Err(text.problem(message)),
    };
    texts.into_iter().map(rule).collect()
}

pub(super) fn addresses(given: Vec<Located<String>>) -> ConfigResult<Vec<Located<String>>> {
    for address in &given {
        let parsed = address.value.parse::<Address>();
        parsed.map_err(|error| address.problem(error.reason().to_owned()))?;
    }
    Ok(given)
}

fn values(texts: Vec<Located<String>>) -> Vec<String> {
    texts.into_iter().map(|text| text.value).collect()
}

// -- formatting of values as in a file

/// A string in quotes, escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A table of quoted strings; empty without entries.
pub(super) fn table(pairs: impl Iterator<Item = (String, String)>) -> String {
    let pairs = pairs.map(|(name, value)| format!("{} = {}", quoted(&name), quoted(&value)));
    match pairs.collect::<Vec<_>>() {
        pairs if pairs.is_empty() => String::new(),
        pairs => format!("{{ {} }}", pairs.join(", ")),
    }
}

/// A list of quoted strings.
pub(crate) fn quoted_list<S: AsRef<str>>(items: impl Iterator<Item = S>) -> String {
    list(items.map(|item| quoted(item.as_ref())))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

pub(super) fn quoted_addresses(addresses: &[Located<String>]) -> String {
    quoted_list(addresses.iter().map(|address| &address.value))
}

pub(super) fn quoted_time(time: Duration) -> String {
    quoted(&show_time(time))
}

pub(super) fn quoted_path(path: Option<&Located<PathBuf>>) -> String {
    path.map_or_else(String::new, |path| quoted(&path.value.to_string_lossy()))
}

fn quoted_rules(rules: Option<&Vec<Rule>>) -> String {
    rules.map_or_else(String::new, |rules| quoted_list(rules.iter().map(|rule| &rule.text)))
}
