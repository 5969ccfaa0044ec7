//! The sections of a file that have fixed keys: each with its keys, their defaults, and their
//! checks.

pub(crate) mod acme; // [acme]: certificates that are ordered
pub(crate) mod addresses; // addresses to listen on
pub(crate) mod cluster; // [cluster]: several machines
pub(crate) mod host; // keys of a host that its routes do not inherit
pub(crate) mod balance_policy; // names of policies of load balancing
pub(crate) mod response_cache; // [response_cache]: the store of responses
pub(crate) mod provided; // certificates and endpoints of a cluster
pub(crate) mod resolver; // keys about the names of upstreams
pub(crate) mod limits; // [limits]: the settings of the engine
pub(crate) mod log; // [log]: access log and error log
pub(crate) mod maps; // [maps]: values of placeholders
pub(crate) mod status; // [status]: the status endpoint
pub(crate) mod streams; // [streams]: connections without HTTP
pub(crate) mod tls; // [tls]: certificates and clients of TLS
pub(crate) mod top; // the keys before the first section
pub(crate) mod tracing; // [tracing]: the export of spans
