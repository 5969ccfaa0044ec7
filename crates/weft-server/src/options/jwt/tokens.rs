//! Authentication by signed tokens: JSON Web Tokens (RFC 7519) as bearer tokens (RFC 6750).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jsonwebtoken::{Validation, decode, decode_header, get_current_timestamp};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use weft::middleware::{User, bearer_token};
use weft::{HeaderValue, Request, Response, StatusCode};

use super::keys::{KeySet, KeySource};
use super::{JwtKeys, JwtOptions};
use crate::options::authentication::unauthorized;

/// Difference of clocks that is permitted by default.
const DEFAULT_CLOCK_SKEW: Duration = Duration::from_secs(30);

/// Maximum number of keys that are tried for a token without a key ID.
const MAX_TRIED_KEYS: usize = 4;

/// Maximum number of verified tokens that are remembered.
const MAX_REMEMBERED: usize = 1_024;

/// Verifies the tokens of requests.
pub(in crate::options) struct Tokens {
    keys: KeySource,
    issuers: Vec<String>,
    audiences: Vec<String>,
    /// Required claims: `NAME=VALUE` or `NAME`.
    claims: Vec<String>,
    clock_skew: Duration,
    /// Challenges for requests without a token and with an invalid one (RFC 6750 §3).
    missing: HeaderValue,
    invalid: HeaderValue,
    remembered: Mutex<HashMap<[u8; 32], Verified>>,
}

/// A token that was verified, so that its signature, which is slow, is verified once.
struct Verified {
    user: Option<User>,
    keys: Arc<KeySet>,
    expires: u64,
}

impl Tokens {
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn open(
        keys: &JwtKeys,
        options: &JwtOptions,
        realm: &str,
    ) -> Result<Tokens, String> {
        let challenge = |end: &str| {
            let value = HeaderValue::from_str(&format!("Bearer realm=\"{realm}\"{end}"));
            value.map_err(|_| "a realm has no control characters".to_owned())
        };
        let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
        Ok(Tokens {
            keys: KeySource::open(keys)?,
            issuers: list(&options.issuers),
            audiences: list(&options.audiences),
            claims: list(&options.claims),
            clock_skew: options.clock_skew.unwrap_or(DEFAULT_CLOCK_SKEW),
            missing: challenge("")?,
            invalid: challenge(", error=\"invalid_token\"")?,
            remembered: Mutex::default(),
        })
    }

    /// Returns the subject of the token of a request, if it has one.
    ///
    /// # Errors
    /// The response for the client, if there is no valid token, or no key to verify it.
    pub(in crate::options) async fn authenticate(
        &self,
        request: &Request,
    ) -> Result<Option<User>, Response> {
        let token = bearer_token(request).ok_or_else(|| unauthorized(&self.missing))?;
        let invalid = || unauthorized(&self.invalid);
        let header = decode_header(token).map_err(|_| invalid())?;
        let keys = self.keys.keys().await;
        let keys = keys.ok_or_else(|| Response::from(StatusCode::SERVICE_UNAVAILABLE))?;
        // RFC 7515 §4.1.11: extensions that must be understood.
        if header.extras.inner().contains_key("crit") {
            return Err(invalid());
        }
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some(user) = self.recall(&digest, &keys) {
            return Ok(user);
        }
        let mut keys = keys;
        if keys.candidates(header.alg, header.kid.as_deref()).next().is_none() {
            // The keys may have been replaced.
            keys = self.keys.newer_keys().await.ok_or_else(invalid)?;
        }
        let claims = self.verify(token, &header, &keys).ok_or_else(invalid)?;
        let subject = claims.get("sub").and_then(Value::as_str);
        let user = subject.map(User::new);
        let expires = claims.get("exp").and_then(Value::as_u64).unwrap_or(0);
        self.remember(digest, Verified { user: user.clone(), keys, expires });
        Ok(user)
    }

    /// Returns the claims of a token; `None` if it is not valid.
    fn verify(
        &self,
        token: &str,
        header: &jsonwebtoken::Header,
        keys: &KeySet,
    ) -> Option<Map<String, Value>> {
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
        self.claims.iter().all(|required| has_claim(&claims, required)).then_some(claims)
    }

    /// Returns the user of a token that was verified with these keys, if it has not expired.
    fn recall(&self, digest: &[u8; 32], keys: &Arc<KeySet>) -> Option<Option<User>> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let known = remembered.get(digest).filter(|known| Arc::ptr_eq(&known.keys, keys))?;
        let is_valid = known.expires + self.clock_skew.as_secs() > get_current_timestamp();
        is_valid.then(|| known.user.clone())
    }

    fn remember(&self, digest: [u8; 32], verified: Verified) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(digest, verified);
    }
}

/// Returns true if a claim has the required value: as its text, in a list, or as one of the words of
/// a text, as in `scope` (RFC 8693 §4.2).
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
