//! The API server: objects are watched, and statuses are written.

pub(crate) mod controller; // objects → plans, applied one after the other
mod lease; // the lease of the writer of statuses
mod status; // statuses as JSON
mod watch; // objects of one kind
mod writer; // writes statuses and events
