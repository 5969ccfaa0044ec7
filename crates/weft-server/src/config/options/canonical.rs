//! Redirects to the canonical host and to HTTPS.

use weft_config::{ConfigResult, Key, Located, ValueKind, quoted};

use super::{RouteOptions, show};

pub(super) const HTTPS_REDIRECT: Key<RouteOptions> = Key {
    name: "https_redirect",
    flag: "https-redirect",
    argument: "",
    help: "redirect unencrypted requests to HTTPS (308)",
    kind: ValueKind::Bool(|options, switch| options.https_redirect = Some(switch)),
    show: |options| show(options.https_redirect.as_ref()),
};

pub(super) const CANONICAL_HOST: Key<RouteOptions> = Key {
    name: "canonical_host",
    flag: "canonical-host",
    argument: "HOST",
    help: "redirect requests for other names to this one (308): example.org or \
           example.org:8443",
    kind: ValueKind::Text(set_canonical_host),
    show: |options| options.canonical_host.as_deref().map_or_else(String::new, quoted),
};

fn set_canonical_host(options: &mut RouteOptions, host: Located<String>) -> ConfigResult {
    let is_permitted = |b: u8| b.is_ascii_alphanumeric() || b"-.:[]".contains(&b);
    if host.value.is_empty() || !host.value.bytes().all(is_permitted) {
        let message = format!("expected a host such as example.org, found {:?}", host.value);
        return Err(host.problem(message));
    }
    options.canonical_host = Some(host.value);
    Ok(())
}
