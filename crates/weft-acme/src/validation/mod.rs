//! Validations, by which an authority checks that the server controls a name (RFC 8555 §8).

pub(crate) mod challenge_kind;
pub(crate) mod challenges; // responses to pending validations
pub(crate) mod dns_provider; // TXT records
pub(crate) mod remote_validations; // validations of other servers
pub(crate) mod shared_validations; // their trait
