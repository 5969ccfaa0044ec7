//! Names of fields that options may change.

use weft::header::{self, HeaderName};
use weft_config::{ConfigResult, Located};

use crate::base::engine_fields::engine_sets;

/// Returns an error message for a name that cannot be changed.
pub(in crate::options) type NameCheck = fn(&HeaderName) -> Result<(), String>;

/// Parses the name of a field, and checks it.
pub(in crate::options) fn parse_name(
    text: &Located<String>,
    name: &str,
    check: NameCheck,
) -> ConfigResult<HeaderName> {
    let name = name.trim();
    let parsed: HeaderName = name
        .parse()
        .map_err(|_| text.problem(format!("expected the name of a field, found {name:?}")))?;
    check(&parsed).map_err(|message| text.problem(message))?;
    Ok(parsed)
}

/// Refuses fields of responses that the engine sets. `Server` may be changed: the engine sets it
/// only if there is none.
pub(in crate::options) fn check_response_name(name: &HeaderName) -> Result<(), String> {
    match engine_sets(name) && *name != header::SERVER {
        true => Err(format!("the server sets {name} itself")),
        false => Ok(()),
    }
}

/// Refuses fields of requests that cannot be set. A proxy sends the `Host` that is set.
pub(in crate::options) fn check_set_name(name: &HeaderName) -> Result<(), String> {
    if *name == header::HOST { Ok(()) } else { check_changed_name(name) }
}

/// Refuses fields of requests that authentication servers must not set: fields about the client,
/// and all that [`check_changed_name`] refuses.
pub(in crate::options) fn check_request_name(name: &HeaderName) -> Result<(), String> {
    match name.as_str() {
        "forwarded" | "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-proto" => {
            let hint = "the proxy generates it, and keeps the field of a trusted proxy";
            Err(format!("{name} cannot be changed: {hint}"))
        }
        _ => check_changed_name(name),
    }
}

/// Refuses fields of requests that other keys set, and fields of one connection. Fields about the
/// client may be changed, such as `X-Forwarded-Proto` behind a balancer that ends TLS.
pub(in crate::options) fn check_changed_name(name: &HeaderName) -> Result<(), String> {
    let hint = match name.as_str() {
        "host" => "the key `host` of the proxy sets it",
        "via" => "the key `via` of the proxy sets it",
        "client-cert" | "client-cert-chain" => "the key `client_cert` of the proxy sets it",
        "content-length" | "expect" | "trailer" => "it describes the body, which does not change",
        "connection"
        | "keep-alive"
        | "proxy-authenticate"
        | "proxy-authorization"
        | "proxy-connection"
        | "te"
        | "transfer-encoding"
        | "upgrade" => "it applies to one connection, and is not forwarded",
        "proxy" => "programs mistake it for the variable HTTP_PROXY",
        _ => return Ok(()),
    };
    Err(format!("{name} cannot be changed: {hint}"))
}
