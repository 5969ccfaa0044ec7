//! The access log.

mod log; // middleware that logs requests
mod log_format; // formats of lines
mod log_line; // one line
mod log_value; // values of a request by name

pub use log::Log;
pub use log_format::LogFormat;
pub use log_value::{LogValue, LogValues};
