//! The client side of ACME (RFC 8555).

pub(crate) mod authority_client; // requests and their responses
pub(crate) mod certificate_order; // one order
pub(crate) mod failure; // the reason why there is no certificate
mod operator_changes; // revocation, and new keys of accounts
pub(crate) mod sign_in; // accounts
