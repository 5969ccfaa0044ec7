//! Clients that may change something: the configuration, or upstreams.
//!
//! A client that may change the configuration may read all files of the server's user, and start
//! its programs. So changes are disabled by default, and refused if they could come from elsewhere:
//!
//! - connections other than the permitted ones;
//! - requests that a proxy has forwarded;
//! - requests of browsers, which any site can make them send to a local address. They have `Origin`
//!   or `Sec-Fetch-Site`; a form cannot send `PUT`, `PATCH` or the media type of TOML without a
//!   preflight request, which gets no permission here; and a site that resolves its own name to the
//!   loopback address (DNS rebinding) has that name in `Host`.

use weft::Request;

use super::hosts::is_loopback_host;
use crate::sections::status::PermittedChanges;

/// Fields of requests that come from a browser, or by way of a proxy.
const FOREIGN_FIELDS: [&str; 6] =
    ["origin", "sec-fetch-site", "via", "forwarded", "x-forwarded-for", "x-real-ip"];

/// Returns an error with the reason why a client must not make changes. `disabled` is the reason if
/// no client may make changes.
pub(super) fn check(
    request: &Request,
    permitted: PermittedChanges,
    disabled: &'static str,
) -> Result<(), &'static str> {
    match (request.peer().address(), permitted) {
        (_, PermittedChanges::Never) => return Err(disabled),
        (None, _) => {}
        (Some(_), PermittedChanges::Unix) => {
            return Err("changes are accepted on Unix sockets only");
        }
        (Some(address), PermittedChanges::Loopback) => {
            if !address.ip().to_canonical().is_loopback() {
                return Err("changes are accepted from this machine only");
            }
            if !request.host().is_some_and(is_loopback_host) {
                return Err("changes are accepted for `localhost` and loopback addresses only");
            }
        }
    }
    match FOREIGN_FIELDS.iter().any(|name| request.headers().get_bytes(name).is_some()) {
        true => Err("changes are not accepted from browsers and by way of proxies"),
        false => Ok(()),
    }
}
