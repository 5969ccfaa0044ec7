//! The access log.

mod log; // middleware that logs requests
mod log_format; // formats of lines
mod log_line; // one line
mod log_privacy; // parts of lines that are withheld
mod log_value; // values of a request by name

pub use log::Log;
pub use log_format::LogFormat;
pub use log_privacy::{LogPrivacy, client_network};
pub use log_value::{LogValue, LogValues};
