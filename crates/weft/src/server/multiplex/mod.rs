//! The parts that HTTP/2 and HTTP/3 have in common: requests that are streams of one connection.

pub(super) mod disk_read; // reads of files that wait for the disk
pub(super) mod exchanges; // the exchanges in progress, polled in the task of the connection
pub(super) mod field_block; // the fields of a request, to a request
pub(super) mod incoming; // the content of a request
pub(super) mod pipe; // the channel between a connection and a body or a tunnel
pub(super) mod ready_queue; // streams whose pipes have changed
pub(super) mod received_request; // the request of a stream
pub(super) mod response_head; // a response, to fields
pub(super) mod tunnel; // a stream as a bidirectional byte stream
