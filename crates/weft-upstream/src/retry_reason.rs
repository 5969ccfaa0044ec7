//! Reasons for which a request is sent again.

use crate::gateway_error::GatewayError;

/// Reason for which a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryReason {
    /// No connection could be established.
    Unreachable,
    /// A new connection closed before the first byte of the response.
    Closed,
    /// A connection of the pool closed before the first byte of the response: upstreams may close
    /// idle connections at any time.
    IdleClosed,
    /// The upstream has stated that it has not processed the request.
    NotProcessed,
    /// The status of the response was a failure.
    Status,
}

impl RetryReason {
    /// All reasons.
    pub const ALL: [RetryReason; 5] = [
        RetryReason::Unreachable,
        RetryReason::Closed,
        RetryReason::IdleClosed,
        RetryReason::NotProcessed,
        RetryReason::Status,
    ];

    /// Returns the reason for a retry after a failure; `None` if none follows such a failure.
    pub(crate) fn of(failure: &GatewayError) -> Option<RetryReason> {
        match failure {
            GatewayError::Unreachable(_) => Some(RetryReason::Unreachable),
            GatewayError::ConnectionLost(_) => Some(RetryReason::Closed),
            GatewayError::StaleConnection(_) => Some(RetryReason::IdleClosed),
            GatewayError::NotProcessed(_) => Some(RetryReason::NotProcessed),
            _ => None,
        }
    }

    /// Returns the name of the reason, such as `idle_closed`.
    pub fn name(self) -> &'static str {
        match self {
            RetryReason::Unreachable => "unreachable",
            RetryReason::Closed => "closed",
            RetryReason::IdleClosed => "idle_closed",
            RetryReason::NotProcessed => "not_processed",
            RetryReason::Status => "status",
        }
    }
}
