//! Hooks of a worker that write to the logs.

use std::time::SystemTime;

use log::Level;
use weft::{Error, ErrorKind, Fault, Hooks, LogFormat, Peer, Record};

use super::sink::LineSender;

/// Hooks that log the requests and errors of a worker.
pub(crate) struct WorkerLog {
    access: Option<AccessLog>,
}

/// Access log of a worker.
pub(super) struct AccessLog {
    sender: LineSender,
    format: LogFormat,
}

impl AccessLog {
    pub(super) fn new(sender: LineSender, format: LogFormat) -> AccessLog {
        AccessLog { sender, format }
    }
}

impl WorkerLog {
    pub(super) fn new(access: Option<AccessLog>) -> WorkerLog {
        WorkerLog { access }
    }
}

impl Hooks for WorkerLog {
    /// Logs client errors at debug level only, because a public server gets many of them.
    fn on_error(&self, peer: &Peer, error: &Error) {
        // Reported when a reload of the certificates fails while the server is running.
        if error.kind() == ErrorKind::InvalidSetting {
            return log::error!(
                "cannot reload certificates, the current ones stay in use: {error}"
            );
        }
        let level = match error.kind().fault() {
            Fault::Peer => Level::Debug,
            Fault::Application | Fault::System => Level::Error,
        };
        match peer.address() {
            Some(address) => log::log!(level, "{address}: {error}"),
            None => log::log!(level, "unix: {error}"),
        }
    }

    fn needs_records(&self) -> bool {
        self.access.is_some()
    }

    fn on_response(&self, record: &Record<'_>) {
        if let Some(AccessLog { sender, format }) = &self.access {
            sender.append(|text| format.append_record(text, record, SystemTime::now()));
        }
    }
}
