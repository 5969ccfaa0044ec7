//! URLs of upstreams, and members of a group.

pub(crate) mod http_version;
pub(crate) mod into_upstreams;
pub(crate) mod member;
pub(crate) mod upstream_url;
