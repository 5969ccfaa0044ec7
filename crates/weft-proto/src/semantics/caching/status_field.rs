//! Members of `Cache-Status` (RFC 9211).

use std::fmt::Write;

use http::StatusCode;

/// The reason that a request was forwarded (RFC 9211 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// The cache is not used for this request, by configuration.
    Bypass,
    /// The method needs the origin.
    Method,
    /// No response is stored for the URI.
    UriMiss,
    /// Stored responses belong to other selecting fields.
    VaryMiss,
    /// The client asked for validation.
    Request,
    /// The stored response is stale.
    Stale,
}

impl Forwarded {
    /// The token of the parameter `fwd`.
    pub const fn token(self) -> &'static str {
        match self {
            Forwarded::Bypass => "bypass",
            Forwarded::Method => "method",
            Forwarded::UriMiss => "uri-miss",
            Forwarded::VaryMiss => "vary-miss",
            Forwarded::Request => "request",
            Forwarded::Stale => "stale",
        }
    }
}

/// Handling of a request by a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// A stored response was sent without the origin. `ttl` is negative for a stale one.
    Hit {
        /// Seconds for which the response is fresh.
        ttl: i64,
    },
    /// The request was forwarded.
    Forwarded {
        /// The reason.
        reason: Forwarded,
        /// The status of the origin's response, if the client gets another one.
        status: Option<StatusCode>,
        /// The response was stored.
        is_stored: bool,
        /// Another request was forwarded in place of this one.
        is_collapsed: bool,
    },
}

impl Handling {
    /// A request that was forwarded, and whose response is not stored.
    pub const fn passed(reason: Forwarded) -> Handling {
        Handling::Forwarded { reason, status: None, is_stored: false, is_collapsed: false }
    }
}

/// Composes the member of a cache with this name, a token.
///
/// ```
/// use weft_proto::semantics::caching::status_field::{Handling, member};
///
/// assert_eq!(member("Weft", Handling::Hit { ttl: 30 }), "Weft; hit; ttl=30");
/// ```
pub fn member(name: &str, handling: Handling) -> String {
    let mut member = String::with_capacity(name.len() + 32);
    member.push_str(name);
    match handling {
        Handling::Hit { ttl } => _ = write!(member, "; hit; ttl={ttl}"),
        Handling::Forwarded { reason, status, is_stored, is_collapsed } => {
            _ = write!(member, "; fwd={}", reason.token());
            if let Some(status) = status {
                _ = write!(member, "; fwd-status={}", status.as_u16());
            }
            for (is_set, name) in [(is_stored, "; stored"), (is_collapsed, "; collapsed")] {
                member.push_str(if is_set { name } else { "" });
            }
        }
    }
    member
}
