//! Hooks of a worker that write to the logs.

use std::cell::RefCell;
use std::sync::Arc;

use log::Level;
use weft::error::Fault;
use weft::hooks::Record;
use weft::log::LogPrivacy;
use weft::net::Peer;
use weft::{Error, ErrorKind, Hooks};
use weft_upstream::ThrottledWarning;

use super::Logs;
use super::access::AccessLog;
use crate::base::request_notes::RequestNotes;
use crate::sections::tls::log_reload_failure;
use crate::sections::top::FORWARDING_PROXIES;
use crate::sections::tracing::{Span, Tracer};

/// Hooks that log the requests and errors of a worker.
pub(crate) struct WorkerLog {
    logs: Arc<Logs>,
    access: RefCell<DefaultLog>,
    accept_warning: ThrottledWarning,
    proxy_header_warning: ThrottledWarning,
    certificate_warning: ThrottledWarning,
    body_warning: ThrottledWarning,
}

/// Access log of the requests without another one.
struct DefaultLog {
    log: Option<AccessLog>,
    /// Requests are logged here or by their routes, or are spans.
    is_needed: bool,
    tracer: Option<Arc<Tracer>>,
    /// Parts that spans withhold.
    privacy: LogPrivacy,
    /// Generation of the logs that it belongs to.
    generation: u64,
}

impl DefaultLog {
    fn new(logs: &Logs) -> DefaultLog {
        // Read before the logs: if they are replaced in between, they are read once more.
        let generation = logs.generation();
        let current = logs.current();
        let log = current.for_worker().default_log();
        let (is_needed, tracer) = (current.needs_records(), current.tracer().cloned());
        let privacy = current.privacy().cloned().unwrap_or_default();
        DefaultLog { log, is_needed, tracer, privacy, generation }
    }
}

impl WorkerLog {
    pub(super) fn new(logs: Arc<Logs>) -> WorkerLog {
        WorkerLog {
            access: RefCell::new(DefaultLog::new(&logs)),
            logs,
            accept_warning: ThrottledWarning::default(),
            proxy_header_warning: ThrottledWarning::default(),
            certificate_warning: ThrottledWarning::default(),
            body_warning: ThrottledWarning::default(),
        }
    }

    /// Writes the line of a request or of a tunnel to the logs of its route, or to the default one.
    fn write_line(&self, record: &Record<'_>, notes: Option<&RequestNotes>) {
        if let Some(notes) = notes
            && let Some(logs) = notes.logs()
        {
            return logs.write(record, notes);
        }
        self.with_default_log(|default| {
            if let Some(log) = &default.log {
                log.write(record, notes);
            }
        });
    }

    /// Calls `read` with the current log of requests without another one.
    fn with_default_log<T>(&self, read: impl FnOnce(&DefaultLog) -> T) -> T {
        if self.access.borrow().generation != self.logs.generation() {
            self.access.replace(DefaultLog::new(&self.logs));
        }
        read(&self.access.borrow())
    }
}

impl Hooks for WorkerLog {
    /// Logs client errors at debug level only, because a public server gets many of them.
    fn on_error(&self, peer: &Peer, error: &Error) {
        // Reported when a reload of the certificates fails while the server is running.
        if error.kind() == ErrorKind::InvalidSetting {
            return log_reload_failure(error);
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
                 [limits] requires of proxies; {FORWARDING_PROXIES}"
            ));
        }
        // Any client can cause it, with any name.
        if error.kind() == ErrorKind::NoCertificate {
            let ip = peer.address().map_or_else(|| "unix".to_owned(), |peer| peer.ip().to_string());
            return self
                .certificate_warning
                .warn(&format!("closed a connection from {ip} in its TLS handshake: {error}"));
        }
        // Users report it as an upload that fails.
        if error.kind() == ErrorKind::BodyTooLarge {
            let ip = peer.address().map_or_else(|| "unix".to_owned(), |peer| peer.ip().to_string());
            return self.body_warning.warn(&format!(
                "refused a request from {ip} with 413: {}; see `max_body_bytes` of its route or of \
                 [limits], and `max_spooled_bytes` of scripts",
                error.reason()
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
        self.with_default_log(|default| default.is_needed)
    }

    fn on_response(&self, record: &Record<'_>) {
        let notes = record.data::<RequestNotes>();
        if let Some(notes) = notes
            && let Some(context) = notes.trace().filter(|context| context.is_sampled)
        {
            self.with_default_log(|default| {
                if let Some(tracer) = &default.tracer
                    && let Some(span) = Span::new(context, record, notes, &default.privacy)
                {
                    tracer.record(span);
                }
            });
        }
        // An upgraded connection has one line, at its end.
        if !record.is_upgrade {
            self.write_line(record, notes);
        }
    }

    fn on_tunnel_end(&self, record: &Record<'_>) {
        self.write_line(record, record.data());
    }
}
