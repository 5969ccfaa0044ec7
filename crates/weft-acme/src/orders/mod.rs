//! Orders and renewals: one task decides when a certificate is due, and runs the orders.

mod attempt; // one attempt to renew a certificate
mod demand; // one certificate on demand
pub(crate) mod failure_log; // log lines about failures
pub(crate) mod manager; // the task
pub(crate) mod order_context; // state and settings of the orders
pub(crate) mod registry; // the certificates of all names in memory
