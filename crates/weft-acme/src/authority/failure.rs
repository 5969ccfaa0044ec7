//! The reason why there is no certificate.

use std::fmt;

use instant_acme::Error;

/// Type of the problem that an authority reports for a nonce (RFC 8555 §6.5).
pub(super) const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

/// Reason why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The authority has refused several nonces in a row. A new attempt may succeed.
    BadNonce,
    /// Another reason. If the authority stated the reason, these are its words.
    Other(String),
}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure::Other(reason)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match &error {
            Error::Api(problem) if problem.r#type.as_deref() == Some(BAD_NONCE) => {
                Failure::BadNonce
            }
            Error::Json(error) => {
                Failure::Other(format!("the authority's response is invalid: {error}"))
            }
            error => Failure::Other(error.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::BadNonce => "the authority accepts no nonce",
            Failure::Other(reason) => reason,
        })
    }
}
