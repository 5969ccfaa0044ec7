//! What a worker tells the logs.

use std::time::SystemTime;

use log::Level;
use weft::{Error, ErrorKind, Fault, Hooks, LogFormat, Peer, Record};

use super::sink::Lines;

pub(crate) struct WorkerLog {
    access: Option<AccessLog>,
}

/// The lines of a worker's requests.
pub(super) struct AccessLog {
    lines: Lines,
    format: LogFormat,
}

impl AccessLog {
    pub(super) fn new(lines: Lines, format: LogFormat) -> AccessLog {
        AccessLog { lines, format }
    }
}

impl WorkerLog {
    pub(super) fn new(access: Option<AccessLog>) -> WorkerLog {
        WorkerLog { access }
    }
}

impl Hooks for WorkerLog {
    /// What clients do wrong is of no interest to most: on the open Internet it never ends.
    fn on_error(&self, peer: &Peer, error: &Error) {
        // Certificates are loaded anew while clients are served.
        if error.kind() == ErrorKind::InvalidSetting {
            return log::error!("the certificates stay as they were: {error}");
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
        if let Some(AccessLog { lines, format }) = &self.access {
            lines.append(|text| format.append_record(text, record, SystemTime::now()));
        }
    }
}
