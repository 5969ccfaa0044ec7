//! Hooks of a worker that write to the logs.

use std::time::SystemTime;

use log::Level;
use weft::{Error, ErrorKind, Fault, Hooks, LogFormat, Peer, Record};

use super::sink::LineSender;
use crate::throttled_log::ThrottledWarning;

/// Hooks that log the requests and errors of a worker.
pub(crate) struct WorkerLog {
    access: Option<AccessLog>,
    accept_warning: ThrottledWarning,
    proxy_header_warning: ThrottledWarning,
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
        WorkerLog {
            access,
            accept_warning: ThrottledWarning::default(),
            proxy_header_warning: ThrottledWarning::default(),
        }
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
        // Attempted 20 times a second while the process has too many open files.
        if error.kind() == ErrorKind::Accept {
            return self.accept_warning.warn(&format!(
                "{error}; idle connections are closed (see `max_connections` and the limit on open \
                 files, `ulimit -n`)"
            ));
        }
        // All requests fail if the proxy does not use the protocol.
        if error.kind() == ErrorKind::ProxyHeader {
            let ip = peer.address().map_or_else(|| "unix".to_owned(), |peer| peer.ip().to_string());
            return self.proxy_header_warning.warn(&format!(
                "closed a connection from {ip} without a PROXY header, which `proxy_protocol` of \
                 [limits] requires; a proxy that sends X-Forwarded-For belongs in \
                 `trusted_proxies` instead"
            ));
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

    fn on_certificates_reloaded(&self) {
        log::info!("the certificates were reloaded, because their files have changed");
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
