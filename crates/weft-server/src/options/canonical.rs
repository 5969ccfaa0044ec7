//! Redirects to the canonical host and to HTTPS.

use weft::middleware::Canonical;
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted};

use super::layer::{Layer, OpenContext};
use super::{RouteOption, RouteOptions, show};

/// The canonical scheme and host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CanonicalOptions {
    is_https: Option<bool>,
    host: Option<String>,
}

impl CanonicalOptions {
    /// Redirects to HTTPS, unless the key is set.
    pub(crate) fn redirect_to_https_by_default(&mut self) {
        self.is_https.get_or_insert(true);
    }
}

impl RouteOption for CanonicalOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "https_redirect",
            flag: "https-redirect",
            argument: "",
            help: "redirect unencrypted requests to HTTPS (308)",
            kind: ValueKind::Bool(|options, switch| options.is_https = Some(switch)),
            show: |options| show(options.is_https.as_ref()),
        },
        Key {
            name: "canonical_host",
            flag: "canonical-host",
            argument: "HOST",
            help: "redirect requests for other names to this one (308): example.org or \
                   example.org:8443",
            kind: ValueKind::Text(set_host),
            show: |options| options.host.as_deref().map_or_else(String::new, quoted),
        },
    ];

    fn or(self, outer: &Self) -> Self {
        CanonicalOptions {
            is_https: self.is_https.or(outer.is_https),
            host: self.host.or_else(|| outer.host.clone()),
        }
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let redirects_to_https = self.is_https.unwrap_or(false);
        if !redirects_to_https && self.host.is_none() {
            return Ok(Vec::new());
        }
        let canonical = Canonical::new();
        let canonical = if redirects_to_https { canonical.https() } else { canonical };
        let canonical = self.host.iter().fold(canonical, |canonical, host| canonical.host(host));
        Ok(vec![Layer::of_middleware(canonical)])
    }
}

fn set_host(options: &mut CanonicalOptions, host: Located<String>) -> ConfigResult {
    let is_permitted = |b: u8| b.is_ascii_alphanumeric() || b"-.:[]".contains(&b);
    if host.value.is_empty() || !host.value.bytes().all(is_permitted) {
        let message = format!("expected a host such as example.org, found {:?}", host.value);
        return Err(host.problem(message));
    }
    options.host = Some(host.value);
    Ok(())
}
