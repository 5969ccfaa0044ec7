//! Names of fields, and changes to fields, which several options have.

pub(super) mod changes; // changes to the fields of a message
pub(super) mod middleware; // applies changes to requests and responses
pub(super) mod names; // names of fields that options may change
pub(super) mod response_match; // responses by status and media type
pub(super) mod statuses; // statuses and classes of them
