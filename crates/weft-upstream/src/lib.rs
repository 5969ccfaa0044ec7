//! A reverse proxy and a client for upstreams, for gateways and services on Weft.
//!
//! ```no_run
//! use weft_upstream::ReverseProxy;
//!
//! # fn main() -> weft::Result<()> {
//! let proxy = ReverseProxy::new("http://127.0.0.1:3000")?; // or several: [URL, URL]
//! weft::serve("127.0.0.1:8080", proxy)
//! # }
//! ```
//!
//! - [`ReverseProxy`] is an [`Application`](weft::Application) that forwards requests to upstreams,
//!   within the limits and timeouts of [`ProxySettings`]. Each worker of a server has a clone with
//!   connections of its own; the clones share the health of the upstreams.
//! - [`UpstreamUrl`] and [`UpstreamMember`] say where an upstream is; an [`Upstream`] opens
//!   connections to it, and [`DnsServices`] finds the servers of a service in the DNS.
//! - [`Balancer`] selects one of several upstreams, [`UpstreamHealth`] counts their failures,
//!   [`run_checks`] checks them.
//! - [`RemoteServer`] sends single requests of the program itself, such as for keys.
//! - [`spool`] receives bodies ahead of their reader, [`copy`] connects two connections, [`dns`]
//!   resolves names, [`script`] has the variables and heads of CGI, FastCGI, SCGI and uwsgi.
//!
//! The feature `tls`, which is enabled by default, has the cryptography of aws-lc-rs. Programs
//! whose rustls has the provider ring enable `tls-ring` without default features.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(any(feature = "tls", feature = "tls-ring")))]
compile_error!(
    "weft-upstream needs the feature `tls` or `tls-ring`, with the cryptography of its TLS"
);

pub mod attempt_hooks;
mod balance;
mod base;
mod check;
mod client;
mod connect;
pub mod copy;
pub mod dns;
mod exchange;
pub mod gateway_error;
mod head;
mod health;
mod http1;
mod http2;
mod pool;
mod proxy;
mod retry_reason;
pub mod script;
mod settings;
mod sys;
pub mod spool;
pub mod tls;
mod url;

pub use balance::balancer::{BalanceCandidate, Balancer};
pub use base::counter as metrics;
pub use base::inactivity_timer::InactivityTimer;
pub use base::invalid_settings::InvalidSettings;
pub use base::throttled_warning::ThrottledWarning;
pub use base::{rendezvous, task};
pub use check::health_check::run as run_checks;
pub use client::own_request::OwnRequest;
pub use client::remote_server::{RemoteResource, RemoteServer};
pub use connect::upstream::Upstream;
pub use connect::upstream_connection::UpstreamConnection;
pub use dns::answer_cache::TtlBounds;
pub use dns::dns_settings::DnsSettings;
pub use dns::local_services::{LocalServer, LocalServices};
pub use dns::services::{DnsServices, ServiceAnswers, keep_or_open_members};
pub use head::field_filter::may_permit_in_request_trailers;
pub use head::request_fields::RequestFields;
pub use health::operator_control::{ControlChange, UpstreamMode};
pub use health::upstream_health::{FailurePolicy, UpstreamAvailability, UpstreamHealth};
pub use pool::upstream_report::{UpstreamReport, UpstreamState};
pub use proxy::{HashKey, ReverseProxy};
pub use retry_reason::RetryReason;
pub use settings::fastcgi_settings::FastCgiSettings;
pub use settings::health_check_settings::{HealthCheck, HealthCheckTarget};
pub use settings::mirror_settings::MirrorSettings;
pub use settings::proxy_settings::{
    BalancePolicy, ClientCert, ForwardedHost, ForwardedNames, ProxySettings, TextReplacement,
    UpstreamProtocol,
};
pub use settings::sticky_settings::StickySettings;
pub use url::http_version::HttpVersion;
pub use url::into_upstreams::IntoUpstreams;
pub use url::member::{MAX_WEIGHT, MemberShare, UpstreamMember};
pub use url::upstream_url::UpstreamUrl;

/// Compiles the gateway of the tutorial as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/programmers/9-gateway.md")]
mod tutorial {}
