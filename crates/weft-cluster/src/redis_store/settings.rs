//! The address of a store, and the credentials for it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::ClientConfig;

/// URL of a Valkey or Redis server: `redis://HOST[:PORT][/DATABASE]`, or `rediss://` with TLS.
/// Credentials do not belong to it, because URLs are printed and logged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreUrl {
    text: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: u32,
    is_tls: bool,
}

/// A store, and the credentials for it.
#[derive(Clone)]
pub struct StoreSettings {
    /// Address of the store.
    pub url: StoreUrl,
    /// User in the access control list of the store. Default: `default`.
    pub user: Option<String>,
    /// Password of the user.
    pub password: Option<String>,
    /// Configuration of TLS, needed for `rediss://`.
    pub tls: Option<Arc<ClientConfig>>,
}

const DEFAULT_PORT: u16 = 6379;

impl StoreUrl {
    /// Returns true if connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<StoreUrl, String> {
        let (is_tls, rest) = match text.split_once("://") {
            Some(("redis" | "valkey", rest)) => (false, rest),
            Some(("rediss" | "valkeys", rest)) => (true, rest),
            _ => return Err("expected a URL such as redis://10.0.0.5:6379".to_owned()),
        };
        if rest.contains('@') {
            return Err("a URL has no credentials here; set `user` and `password_file`".to_owned());
        }
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let invalid = || format!("{text}: expected HOST[:PORT][/DATABASE] behind the scheme");
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| invalid())?,
        };
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']').ok_or_else(invalid)?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port {
            "" => DEFAULT_PORT,
            port => port.strip_prefix(':').and_then(|it| it.parse().ok()).ok_or_else(invalid)?,
        };
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if host.is_empty() || port == 0 || !host.bytes().all(is_part) {
            return Err(invalid());
        }
        Ok(StoreUrl { text: text.to_owned(), host: host.to_owned(), port, database, is_tls })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Does not show the password.
impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSettings")
            .field("url", &self.url.text)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_urls() {
        for (text, expected) in [
            ("redis://a", Some(("a", 6379, 0, false))),
            ("valkey://10.0.0.5:1/", Some(("10.0.0.5", 1, 0, false))),
            ("rediss://a.example:6380/3", Some(("a.example", 6380, 3, true))),
            ("valkeys://[::1]", Some(("::1", 6379, 0, true))),
            ("redis://[::1]:7", Some(("::1", 7, 0, false))),
            ("redis://user:pass@a", None),
            ("redis://[::1", None),
            ("redis://::1", None),
            ("redis://a:0", None),
            ("redis://a:65536", None),
            ("redis://a/b", None),
            ("redis://a b", None),
            ("redis://", None),
            ("http://a", None),
            ("a:1", None),
        ] {
            let url = text.parse::<StoreUrl>();
            let found = url.as_ref().ok();
            let found = found.map(|it| (&*it.host, it.port, it.database, it.is_tls()));
            assert_eq!(found, expected, "{text}");
            if let Err(message) = &url {
                assert!(!message.contains("pass@"), "{message}");
            }
        }
    }
}
