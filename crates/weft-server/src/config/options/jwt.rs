//! Signed tokens.

use std::path::PathBuf;
use std::time::Duration;

use weft_config::{
    ConfigResult, Key, Located, ValueKind, WordOrPath, quoted, quoted_list, quoted_time,
};

use super::{NONE, RouteOptions, Setting};
use crate::sections::auth_url::AuthUrl;

/// Keys by which tokens are verified.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum JwtKeys {
    File(PathBuf),
    Url(AuthUrl),
    Secret(PathBuf),
}

pub(super) const JWT_KEYS: Key<RouteOptions> = Key {
    name: "jwt_keys",
    flag: "",
    argument: "",
    help: "file of keys (JWKS) by which the tokens of requests (JWT) are verified, reloaded when it \
           changes; none: no tokens",
    kind: ValueKind::WordOrPath(&[NONE], |options, file| {
        options.jwt = Some(match file.value {
            WordOrPath::Word(_) => Setting::None,
            WordOrPath::Path(path) => Setting::Value(JwtKeys::File(path)),
        });
    }),
    show: |options| match &options.jwt {
        Some(Setting::None) => quoted(NONE),
        Some(Setting::Value(JwtKeys::File(path))) => quoted(&path.to_string_lossy()),
        _ => String::new(),
    },
};

pub(super) const JWT_KEYS_URL: Key<RouteOptions> = Key {
    name: "jwt_keys_url",
    flag: "",
    argument: "",
    help: "URL of such keys, in place of a file, fetched every 5 minutes",
    kind: ValueKind::Text(set_url),
    show: |options| match &options.jwt {
        Some(Setting::Value(JwtKeys::Url(url))) => quoted(&url.text),
        _ => String::new(),
    },
};

pub(super) const JWT_SECRET: Key<RouteOptions> = Key {
    name: "jwt_secret",
    flag: "",
    argument: "",
    help: "file with a secret of at least 32 bytes for tokens with HMAC, in place of keys",
    kind: ValueKind::Path(|options, path| {
        options.jwt = Some(Setting::Value(JwtKeys::Secret(path.value)));
    }),
    show: |options| match &options.jwt {
        Some(Setting::Value(JwtKeys::Secret(path))) => quoted(&path.to_string_lossy()),
        _ => String::new(),
    },
};

pub(super) const JWT_ISSUER: Key<RouteOptions> = Key {
    name: "jwt_issuer",
    flag: "",
    argument: "",
    help: "permitted values of the claim `iss` (any)",
    kind: ValueKind::Texts(|options, texts| {
        options.jwt_issuer = Some(texts.into_iter().map(|text| text.value).collect());
        Ok(())
    }),
    show: |options| show_list(options.jwt_issuer.as_ref()),
};

pub(super) const JWT_AUDIENCE: Key<RouteOptions> = Key {
    name: "jwt_audience",
    flag: "",
    argument: "",
    help: "values of the claim `aud`, of which a token has at least one (any)",
    kind: ValueKind::Texts(|options, texts| {
        options.jwt_audience = Some(texts.into_iter().map(|text| text.value).collect());
        Ok(())
    }),
    show: |options| show_list(options.jwt_audience.as_ref()),
};

pub(super) const JWT_CLAIMS: Key<RouteOptions> = Key {
    name: "jwt_claims",
    flag: "",
    argument: "",
    help: "required claims: NAME, or NAME=VALUE for a value, an item of a list or a word of `scope`",
    kind: ValueKind::Texts(|options, texts| {
        let claim = |text: Located<String>| match text.value.split('=').next() {
            Some("") | None => {
                Err(text.problem(format!("expected NAME or NAME=VALUE, found {:?}", text.value)))
            }
            Some(_) => Ok(text.value),
        };
        options.jwt_claims = Some(texts.into_iter().map(claim).collect::<ConfigResult<_>>()?);
        Ok(())
    }),
    show: |options| show_list(options.jwt_claims.as_ref()),
};

pub(super) const JWT_CLOCK_SKEW: Key<RouteOptions> = Key {
    name: "jwt_clock_skew",
    flag: "",
    argument: "",
    help: "difference of clocks that is permitted in `exp` and `nbf`, at most 1h (30s)",
    // A longer one would be a mistake, and make tokens valid long after their end.
    kind: ValueKind::Time(|options, time| {
        options.jwt_clock_skew = Some(time.min(Duration::from_secs(3_600)));
    }),
    show: |options| options.jwt_clock_skew.map_or_else(String::new, quoted_time),
};

fn show_list(list: Option<&Vec<String>>) -> String {
    list.map_or_else(String::new, |list| quoted_list(list.iter()))
}

fn set_url(options: &mut RouteOptions, text: Located<String>) -> ConfigResult {
    let url = AuthUrl::parse(&text.value).map_err(|invalid| text.problem(invalid))?;
    options.jwt = Some(Setting::Value(JwtKeys::Url(url)));
    Ok(())
}
