//! Authentication by signed tokens.

mod keys; // keys by which tokens are verified
mod tokens; // verification of the tokens of requests

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weft::net::IpNetwork;
use weft_config::{ConfigResult, Key, Located, ValueKind, WordOrPath, quoted, quoted_time};

pub(super) use self::tokens::Tokens;
use super::{NONE, RouteOption, Setting, show_list};
use crate::base::auth_url::AuthUrl;

/// Keys by which tokens are verified.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum JwtKeys {
    File(PathBuf),
    Url(AuthUrl),
    Secret(PathBuf),
}

/// Tokens that requests must present. The layer of `authentication` verifies them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct JwtOptions {
    keys: Option<Setting<JwtKeys>>,
    issuers: Option<Vec<String>>,
    audiences: Option<Vec<String>>,
    claims: Option<Vec<String>>,
    clock_skew: Option<Duration>,
}

impl JwtOptions {
    /// Returns true if there are keys, or if the word `none` replaces inherited ones.
    pub(super) fn is_set(&self) -> bool {
        self.keys.is_some()
    }

    /// Returns true if requests need a token.
    pub(super) fn is_enabled(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.value().is_some())
    }

    /// Opens the keys, if there are any. The realm is escaped as in a quoted string.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn tokens(
        &self,
        realm: &str,
        trusted_proxies: &[IpNetwork],
    ) -> Result<Option<Arc<Tokens>>, String> {
        let keys = self.keys.as_ref().and_then(Setting::value);
        let open = |keys| Tokens::open(keys, self, realm, trusted_proxies).map(Arc::new);
        keys.map(open).transpose()
    }
}

impl RouteOption for JwtOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "jwt_keys",
            help: "file of keys (JWKS) by which the tokens of requests (JWT) are verified, reloaded when it \
           changes; none: no tokens",
            kind: ValueKind::WordOrPath(&[NONE], |options, file| {
                options.keys = Some(match file.value {
                    WordOrPath::Word(_) => Setting::None,
                    WordOrPath::Path(path) => Setting::Value(JwtKeys::File(path)),
                });
            }),
            show: |options| match &options.keys {
                Some(Setting::None) => quoted(NONE),
                Some(Setting::Value(JwtKeys::File(path))) => quoted(&path.to_string_lossy()),
                _ => String::new(),
            },
            ..Key::FILE_ONLY
        },
        Key {
            name: "jwt_keys_url",
            help: "URL of such keys, in place of a file, fetched every 5 minutes",
            kind: ValueKind::Text(set_url),
            show: |options| match &options.keys {
                Some(Setting::Value(JwtKeys::Url(url))) => quoted(&url.to_string()),
                _ => String::new(),
            },
            ..Key::FILE_ONLY
        },
        Key {
            name: "jwt_secret",
            help: "file with a secret of at least 32 bytes for tokens with HMAC, in place of keys",
            kind: ValueKind::Path(|options, path| {
                options.keys = Some(Setting::Value(JwtKeys::Secret(path.value)));
            }),
            show: |options| match &options.keys {
                Some(Setting::Value(JwtKeys::Secret(path))) => quoted(&path.to_string_lossy()),
                _ => String::new(),
            },
            ..Key::FILE_ONLY
        },
        Key {
            name: "jwt_issuer",
            help: "permitted values of the claim `iss` (any)",
            kind: ValueKind::Texts(|options, texts| {
                options.issuers = Some(texts.into_iter().map(|text| text.value).collect());
                Ok(())
            }),
            show: |options| show_list(options.issuers.as_ref()),
            ..Key::FILE_ONLY
        },
        Key {
            name: "jwt_audience",
            help: "values of the claim `aud`; a token has at least one of them (any)",
            kind: ValueKind::Texts(|options, texts| {
                options.audiences = Some(texts.into_iter().map(|text| text.value).collect());
                Ok(())
            }),
            show: |options| show_list(options.audiences.as_ref()),
            ..Key::FILE_ONLY
        },
        Key {
            name: "jwt_claims",
            help: "required claims: NAME, or NAME=VALUE for a value, an item of a list or a word of `scope`",
            kind: ValueKind::Texts(|options, texts| {
                let claim = |text: Located<String>| match text.value.split('=').next() {
                    Some("") | None => Err(text
                        .problem(format!("expected NAME or NAME=VALUE, found {:?}", text.value))),
                    Some(_) => Ok(text.value),
                };
                options.claims = Some(texts.into_iter().map(claim).collect::<ConfigResult<_>>()?);
                Ok(())
            }),
            show: |options| show_list(options.claims.as_ref()),
            ..Key::FILE_ONLY
        },
        Key {
            name: "jwt_clock_skew",
            help: "difference of clocks that is permitted in `exp` and `nbf`, at most 1h (30s)",
            // A longer one would be a mistake, and make tokens valid long after their end.
            kind: ValueKind::Time(|options, time| {
                options.clock_skew = Some(time.min(Duration::from_secs(3_600)));
            }),
            show: |options| options.clock_skew.map_or_else(String::new, quoted_time),
            ..Key::FILE_ONLY
        },
    ];

    fn or(self, outer: &Self) -> Self {
        JwtOptions {
            keys: self.keys.or_else(|| outer.keys.clone()),
            issuers: self.issuers.or_else(|| outer.issuers.clone()),
            audiences: self.audiences.or_else(|| outer.audiences.clone()),
            claims: self.claims.or_else(|| outer.claims.clone()),
            clock_skew: self.clock_skew.or(outer.clock_skew),
        }
    }
}

fn set_url(options: &mut JwtOptions, text: Located<String>) -> ConfigResult {
    let url = AuthUrl::parse(&text.value).map_err(|invalid| text.problem(invalid))?;
    options.keys = Some(Setting::Value(JwtKeys::Url(url)));
    Ok(())
}
