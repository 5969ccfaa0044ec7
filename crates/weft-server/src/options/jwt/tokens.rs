//! Authentication by signed tokens: JSON Web Tokens (RFC 7519) as bearer tokens (RFC 6750).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Validation, decode, decode_header, get_current_timestamp};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use weft::client_limit::ClientLimit;
use weft::header::HeaderValue;
use weft::middleware::{User, bearer_token};
use weft::net::IpNetwork;
use weft::{Request, Response, StatusCode};

use super::keys::{KeySet, KeySource};
use super::{JwtKeys, JwtOptions};
use crate::base::verifications::{self, Busy, Digest, Requester, Verifications};
use crate::options::unauthorized;

/// Difference of clocks that is permitted by default.
const DEFAULT_CLOCK_SKEW: Duration = Duration::from_secs(30);

/// Maximum number of keys that are tried for a token without a key ID.
const MAX_TRIED_KEYS: usize = 2;

/// Maximum number of verified tokens that are remembered.
const MAX_REMEMBERED: usize = 1_024;

/// Time for which a refused token is remembered.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// Limit for the tokens of all routes.
static LIMIT: LazyLock<ClientLimit> = LazyLock::new(verifications::new_limit);

/// Verifies the tokens of requests.
pub(in crate::options) struct Tokens {
    rules: Arc<TokenRules>,
    keys: KeySource,
    trusted_proxies: Arc<[IpNetwork]>,
    /// Challenges for requests without a token and with an invalid one (RFC 6750 §3).
    missing: HeaderValue,
    invalid: HeaderValue,
    verifications: Verifications<Option<ValidToken>>,
    remembered: Mutex<HashMap<Digest, Verified>>,
}

/// Requirements of a token besides its signature.
struct TokenRules {
    issuers: Vec<String>,
    audiences: Vec<String>,
    /// Required claims: `NAME=VALUE` or `NAME`.
    claims: Vec<String>,
    clock_skew: Duration,
}

/// A token whose signature was verified with these keys.
struct Verified {
    keys: Arc<KeySet>,
    result: Verification,
}

enum Verification {
    Valid(ValidToken),
    Refused { until: Instant },
}

#[derive(Clone)]
struct ValidToken {
    user: Option<User>,
    /// Seconds since 1970.
    expires: u64,
}

impl Tokens {
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn open(
        keys: &JwtKeys,
        options: &JwtOptions,
        realm: &str,
        trusted_proxies: &[IpNetwork],
    ) -> Result<Tokens, String> {
        let challenge = |end: &str| {
            let value = HeaderValue::from_str(&format!("Bearer realm=\"{realm}\"{end}"));
            value.map_err(|_| "a realm has no control characters".to_owned())
        };
        let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
        let rules = TokenRules {
            issuers: list(&options.issuers),
            audiences: list(&options.audiences),
            claims: list(&options.claims),
            clock_skew: options.clock_skew.unwrap_or(DEFAULT_CLOCK_SKEW),
        };
        Ok(Tokens {
            rules: Arc::new(rules),
            keys: KeySource::open(keys)?,
            trusted_proxies: trusted_proxies.into(),
            missing: challenge("")?,
            invalid: challenge(", error=\"invalid_token\"")?,
            verifications: Verifications::new(LIMIT.clone()),
            remembered: Mutex::default(),
        })
    }

    /// Returns the subject of the token of a request, if it has one.
    ///
    /// # Errors
    /// The response for the client, if there is no valid token, or no key to verify it, or if too
    /// many other tokens are being verified.
    pub(in crate::options) async fn authenticate(
        &self,
        request: &Request,
    ) -> Result<Option<User>, Response> {
        let token = bearer_token(request).ok_or_else(|| unauthorized(&self.missing))?;
        let invalid = || unauthorized(&self.invalid);
        let header = decode_header(token).map_err(|_| invalid())?;
        let keys = self.keys.keys().await;
        let mut keys = keys.ok_or_else(|| Response::from(StatusCode::SERVICE_UNAVAILABLE))?;
        let digest: Digest = Sha256::digest(token).into();
        if let Some(token) = self.recall(&digest, &keys) {
            return token.map(|token| token.user).ok_or_else(invalid);
        }
        if keys.candidates(header.alg, header.kid.as_deref()).next().is_none() {
            // The keys may have been replaced.
            keys = self.keys.newer_keys().await.ok_or_else(invalid)?;
        }
        if names_extensions(token) {
            return Err(invalid());
        }
        let verify = {
            let (rules, token, keys) = (self.rules.clone(), token.to_owned(), keys.clone());
            move || rules.verify(&token, &header, &keys)
        };
        let requester = Requester::of_request(request, &self.trusted_proxies);
        let question = question(&digest, &keys);
        let valid = self.verifications.verify(question, requester, verify).await;
        let valid = valid.map_err(Busy::response)?;
        self.remember(digest, keys, valid.clone());
        valid.map(|token| token.user).ok_or_else(invalid)
    }

    /// Returns a token that was verified with these keys and has not expired; `Some(None)` for a
    /// token that was refused a short time ago.
    fn recall(&self, digest: &Digest, keys: &Arc<KeySet>) -> Option<Option<ValidToken>> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let known = remembered.get(digest).filter(|known| Arc::ptr_eq(&known.keys, keys))?;
        match &known.result {
            Verification::Valid(token) => {
                let clock_skew = self.rules.clock_skew.as_secs();
                let is_current = token.expires + clock_skew > get_current_timestamp();
                is_current.then(|| Some(token.clone()))
            }
            Verification::Refused { until } => (Instant::now() < *until).then_some(None),
        }
    }

    fn remember(&self, digest: Digest, keys: Arc<KeySet>, valid: Option<ValidToken>) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MAX_REMEMBERED {
            // Refused tokens first: they cost a client nothing.
            remembered.retain(|_, known| matches!(known.result, Verification::Valid(_)));
        }
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        let result = match valid {
            Some(token) => Verification::Valid(token),
            None => Verification::Refused { until: Instant::now() + REFUSED_FOR },
        };
        remembered.insert(digest, Verified { keys, result });
    }
}

/// Returns true if the header of a token has the parameter `crit` with any value, also `null`. It
/// names extensions that must be understood (RFC 7515 §4.1.11).
fn names_extensions(token: &str) -> bool {
    let header = token.split('.').next().and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let parameters =
        header.and_then(|json| serde_json::from_slice::<Map<String, Value>>(&json).ok());
    parameters.is_none_or(|parameters| parameters.contains_key("crit"))
}

/// Returns the digest of a token and of the keys by which it is verified. A request with newer keys
/// must not share the verification by the former keys, nor remember its result.
fn question(token: &Digest, keys: &Arc<KeySet>) -> Digest {
    // The running verification holds its keys, so that no others have their address.
    let keys = Arc::as_ptr(keys).addr().to_ne_bytes();
    Sha256::new().chain_update(token).chain_update(keys).finalize().into()
}

impl TokenRules {
    /// Verifies a token; returns `None` if it is not valid.
    fn verify(
        &self,
        token: &str,
        header: &jsonwebtoken::Header,
        keys: &KeySet,
    ) -> Option<ValidToken> {
        let mut validation = Validation::new(header.alg);
        validation.leeway = self.clock_skew.as_secs();
        validation.validate_nbf = true;
        let mut required = vec!["exp"];
        if !self.issuers.is_empty() {
            validation.set_issuer(&self.issuers);
            required.push("iss");
        }
        validation.validate_aud = !self.audiences.is_empty();
        if validation.validate_aud {
            validation.set_audience(&self.audiences);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        let candidates = keys.candidates(header.alg, header.kid.as_deref()).take(MAX_TRIED_KEYS);
        let claims = candidates
            .filter_map(|key| decode::<Map<String, Value>>(token, &key.decoding, &validation).ok())
            .map(|token| token.claims)
            .next()?;
        if !self.claims.iter().all(|required| has_claim(&claims, required)) {
            return None;
        }
        let user = claims.get("sub").and_then(Value::as_str).map(User::new);
        let expires = claims.get("exp").and_then(Value::as_u64).unwrap_or(0);
        Some(ValidToken { user, expires })
    }
}

/// Returns true if a claim has the required value: as its text, in a list, or as one of the words
/// of a text, as in `scope` (RFC 8693 §4.2).
fn has_claim(claims: &Map<String, Value>, required: &str) -> bool {
    let Some((name, expected)) = required.split_once('=') else {
        return claims.get(required).is_some_and(|value| !matches!(value, Value::Null));
    };
    let is_equal = |value: &Value| match value {
        Value::String(text) => text == expected,
        Value::Bool(yes) => yes.to_string() == expected,
        Value::Number(number) => number.to_string() == expected,
        _ => false,
    };
    match claims.get(name) {
        Some(Value::Array(values)) => values.iter().any(is_equal),
        Some(Value::String(text)) if name == "scope" => {
            text.split(' ').any(|word| word == expected)
        }
        Some(value) => is_equal(value),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_no_verification_by_other_keys() {
        let [old, new] = [b"old", b"new"].map(|name| {
            let secret = name.repeat(16);
            Arc::new(KeySet::parse_secret(&secret).unwrap())
        });
        let tokens = [[1; 32], [2; 32]];
        assert_eq!(question(&tokens[0], &old), question(&tokens[0], &old.clone()));
        assert_ne!(question(&tokens[0], &old), question(&tokens[0], &new));
        assert_ne!(question(&tokens[0], &old), question(&tokens[1], &old));
    }

    #[test]
    fn compares_claims() {
        let claims = serde_json::json!({
            "role": "admin", "roles": ["a", "b"], "scope": "read write", "n": 5, "yes": true,
            "none": null, "object": { "a": "b" }, "words": "a b"
        });
        let claims = claims.as_object().unwrap();
        for (required, expected) in [
            ("role=admin", true),
            ("role=adm", false),
            ("role", true),
            ("roles=b", true),
            ("roles=c", false),
            ("scope=read", true),
            ("scope=read write", false),
            ("words=a", false),
            ("words=a b", true),
            ("n=5", true),
            ("yes=true", true),
            ("none", false),
            ("object=a", false),
            ("missing", false),
            ("missing=", false),
        ] {
            assert_eq!(has_claim(claims, required), expected, "{required}");
        }
    }
}
