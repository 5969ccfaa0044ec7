//! Reasons for the end of a connection.

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both directions have ended, or the upstream has sent all `udp_responses`.
    Closed,
    /// No data in both directions for `idle_timeout` or `udp_idle_timeout`.
    Idle,
    /// The connection of the client has failed, or the client has left before it sent enough.
    ClientError,
    /// The connection to the upstream has failed.
    UpstreamError,
    /// The server has stopped.
    Stopped,
    /// `handshake_timeout`.
    Timeout,
    /// The PROXY header of a proxy is missing or invalid.
    ProxyHeader,
    /// The handshake of TLS has failed.
    Tls,
    /// PROXY header and ClientHello are too large.
    TooLarge,
    /// No upstream has the server name.
    UnknownName,
    /// No upstream accepts connections.
    Unreachable,
    /// `max_connections` or `max_connections_per_client`.
    Limit,
    /// The networks in `allow` and `deny` exclude the client.
    Denied,
}

impl End {
    pub(crate) const ALL: [End; 13] = [
        End::Closed,
        End::Idle,
        End::ClientError,
        End::UpstreamError,
        End::Stopped,
        End::Timeout,
        End::ProxyHeader,
        End::Tls,
        End::TooLarge,
        End::UnknownName,
        End::Unreachable,
        End::Limit,
        End::Denied,
    ];

    /// The name in logs and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            End::Closed => "closed",
            End::Idle => "idle",
            End::ClientError => "client-error",
            End::UpstreamError => "upstream-error",
            End::Stopped => "stopped",
            End::Timeout => "timeout",
            End::ProxyHeader => "proxy-header",
            End::Tls => "tls",
            End::TooLarge => "too-large",
            End::UnknownName => "unknown-name",
            End::Unreachable => "unreachable",
            End::Limit => "limit",
            End::Denied => "denied",
        }
    }
}
