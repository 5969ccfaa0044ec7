//! Sessions: a cookie leads the requests of a client to the upstream of its first request.
//!
//! The value of the cookie is a tag of the upstream: the beginning of an HMAC of its address. It
//! does not reveal the address, and without the key nobody can compute the tag of another upstream.

use std::path::Path;
use std::sync::OnceLock;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;
use weft::header::HeaderValue;
use weft::header::{COOKIE, SET_COOKIE};
use weft::{Request, Response};

use crate::base::crypto::{fill_random, hmac};
use crate::settings::sticky_settings::StickySettings;
use crate::url::upstream_url::UpstreamUrl;

/// Bytes of the HMAC in a tag.
const TAG_BYTES: usize = 16;

/// Length of a random key, and limits of a configured one, in bytes.
const KEY_BYTES: usize = 32;
const MIN_SECRET_BYTES: usize = 16;
const MAX_SECRET_BYTES: u64 = 4_096;

/// The cookie of a proxy, and the key of the tags of its upstreams.
pub(crate) struct StickyCookie {
    cookie: String,
    /// Attributes of the cookie besides `Secure`.
    attributes: String,
    key: hmac::Key,
}

impl StickyCookie {
    /// Returns `None` without a cookie.
    ///
    /// # Errors
    /// If the file with the key cannot be read, or is too short or too long.
    pub(crate) fn new(settings: &StickySettings) -> Result<Option<StickyCookie>, String> {
        if settings.cookie.is_empty() {
            return Ok(None);
        }
        let key = match &settings.secret {
            Some(path) => read_key(path).map_err(|reason| {
                format!("the secret {} of the cookie: {reason}", path.display())
            })?,
            None => process_key()?,
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let mut attributes = "; Path=/; HttpOnly; SameSite=Lax".to_owned();
        if !settings.max_age.is_zero() {
            attributes.push_str(&format!("; Max-Age={}", settings.max_age.as_secs()));
        }
        let cookie = settings.cookie.clone();
        Ok(Some(StickyCookie { cookie, attributes, key }))
    }

    /// Returns the tag of an upstream.
    pub(crate) fn tag(&self, url: &UpstreamUrl) -> String {
        let tag = hmac::sign(&self.key, url.to_string().as_bytes());
        BASE64_URL_SAFE_NO_PAD.encode(&tag.as_ref()[..TAG_BYTES])
    }

    /// Returns the index of the tag in the cookie of a request.
    pub(crate) fn find(&self, request: &Request, tags: &[String]) -> Option<usize> {
        let fields = request.headers().get_all(COOKIE.as_str());
        let mut pairs =
            fields.flat_map(|field| field.split(|&b| b == b';')).map(<[u8]>::trim_ascii);
        let value =
            pairs.find_map(|pair| pair.strip_prefix(self.cookie.as_bytes())?.strip_prefix(b"="))?;
        let is_value = |tag: &String| bool::from(tag.as_bytes().ct_eq(value));
        tags.iter().position(is_value)
    }

    /// Adds the cookie with the tag of an upstream.
    pub(crate) fn set(&self, tag: &str, request: &Request, response: Response) -> Response {
        let StickyCookie { cookie, attributes, .. } = self;
        let secure = if request.is_secure() { "; Secure" } else { "" };
        let text = format!("{cookie}={tag}{attributes}{secure}");
        match HeaderValue::try_from(text) {
            Ok(value) => response.with_appended_header(SET_COOKIE, value),
            Err(_) => response,
        }
    }
}

fn read_key(path: &Path) -> Result<Vec<u8>, String> {
    let length = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > MAX_SECRET_BYTES {
        return Err(format!("it is larger than {MAX_SECRET_BYTES} bytes"));
    }
    let key = std::fs::read(path).map_err(|error| error.to_string())?;
    match key.trim_ascii() {
        key if key.len() < MIN_SECRET_BYTES => {
            Err(format!("it has fewer than {MIN_SECRET_BYTES} bytes"))
        }
        key => Ok(key.to_vec()),
    }
}

/// Returns a random key, which is the same for the life of the process.
fn process_key() -> Result<Vec<u8>, String> {
    static KEY: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(key) = KEY.get() {
        return Ok(key.clone());
    }
    let mut key = vec![0; KEY_BYTES];
    fill_random(&mut key).ok_or("the system has no random numbers")?;
    Ok(KEY.get_or_init(|| key).clone())
}
