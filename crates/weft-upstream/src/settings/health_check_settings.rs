//! Settings of the health checks of upstreams.

use std::fmt;
use std::time::Duration;

use weft::StatusCode;

/// A health check: a request that is sent to an upstream periodically.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HealthCheck {
    /// Request of the check. Default `GET /`.
    pub target: HealthCheckTarget,
    /// `Host` of the request. Default empty: [`ProxySettings::host`](crate::ProxySettings::host) if
    /// that is a fixed one, or else the host of the URL.
    pub host: String,
    /// Time between two checks. Default 5 s.
    pub interval: Duration,
    /// Longest time for a check; beyond it the check has failed. Default 2 s.
    pub timeout: Duration,
    /// Statuses of healthy upstreams. Default empty: 200 to 399.
    pub statuses: Vec<StatusCode>,
    /// Text that the response must contain in its first 64 KiB. Default empty: any response.
    pub body: String,
    /// Consecutive failures after which the upstream gets no requests. Default 2.
    pub fall: u32,
    /// Consecutive successes after which it gets requests again. Default 1.
    pub rise: u32,
}

/// The request of a health check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HealthCheckTarget {
    /// `GET` of a request target, which is appended to the path of the upstream's URL.
    Path(String),
    /// `Check` of `grpc.health.v1.Health` for a service; empty: for the server.
    Grpc(String),
    /// A connection, with its handshakes.
    Connection,
}

impl HealthCheck {
    /// Creates a check with the default times and limits.
    pub fn new(target: HealthCheckTarget) -> HealthCheck {
        HealthCheck { target, ..HealthCheck::default() }
    }

    /// Returns true if healthy upstreams respond with a status.
    pub(crate) fn permits(&self, status: StatusCode) -> bool {
        match &*self.statuses {
            [] => status.is_success() || status.is_redirection(),
            statuses => statuses.contains(&status),
        }
    }
}

impl HealthCheckTarget {
    /// Parses a path, `grpc` or `grpc:SERVICE`.
    pub fn parse(text: String) -> HealthCheckTarget {
        let service = text.strip_prefix("grpc").and_then(|rest| match rest {
            "" => Some(""),
            rest => rest.strip_prefix(':'),
        });
        match service {
            Some(service) => HealthCheckTarget::Grpc(service.to_owned()),
            None => HealthCheckTarget::Path(text),
        }
    }
}

impl fmt::Display for HealthCheckTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HealthCheckTarget::Path(path) => f.write_str(path),
            HealthCheckTarget::Grpc(service) if service.is_empty() => f.write_str("grpc"),
            HealthCheckTarget::Grpc(service) => write!(f, "grpc:{service}"),
            HealthCheckTarget::Connection => f.write_str("tcp"),
        }
    }
}

impl Default for HealthCheck {
    fn default() -> HealthCheck {
        HealthCheck {
            target: HealthCheckTarget::Path("/".to_owned()),
            host: String::new(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            statuses: Vec::new(),
            body: String::new(),
            fall: 2,
            rise: 1,
        }
    }
}
