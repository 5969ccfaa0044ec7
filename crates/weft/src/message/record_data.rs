//! Data of an application about a request, for its record.

use std::any::Any;
use std::fmt;

use crate::message::response::Response;

/// Data that an application collects about a request for its [`Record`](crate::hooks::Record), such
/// as values for a line of a log. [`Request::set_record_data`](crate::Request::set_record_data)
/// attaches it, and [`Record::data`](crate::hooks::Record::data) returns it to the hooks.
pub trait RecordData: Any + fmt::Debug + Send + Sync {
    /// Called with the response before it is sent, after preconditions and ranges were applied.
    /// The engine adds `Date`, `Server` and the fields of framing and connection later. Called
    /// again if the response cannot be sent, with the error response in its place. Must not panic.
    fn on_response(&self, response: &Response) {
        let _ = response;
    }
}
