//! The status endpoint: how the server is, for whoever runs it.
//!
//! Each worker counts for itself, in numbers that nobody else writes: its connections
//! (`worker`) and what became of the requests for each route (`routes`). A `Register` knows all of
//! them. A second, small server in a thread of its own reads them when it is asked, adds them up to
//! a `Snapshot`, and shows that as text for Prometheus, as JSON, or on a page (`site`).
//!
//! If there is no such endpoint nothing is counted.

mod process; // what the kernel says
mod prometheus; // Snapshot → text
mod register; // all who count
mod routes; // what a worker counts for each route
mod site; // the endpoint as an application
mod snapshot; // all numbers at one time
mod worker; // what a worker counts

use std::time::Duration;

use weft::{Application, Listener, Server, ServerHandle, Settings};

pub(crate) use self::register::Register;
pub(crate) use self::routes::{RouteCounts, Tally};
pub(crate) use self::worker::Counted;

use self::site::Site;
use crate::reloadable_router::RouteReceiver;

/// How long an end waits for what is under way.
const PATIENCE: Duration = Duration::from_secs(1);

/// The limits of the endpoint, which has few clients.
pub(crate) fn limits() -> Settings {
    Settings {
        max_connections: 64,
        max_connections_per_peer: 64,
        backlog: 64,
        max_body_bytes: 0,
        head_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(30),
        stall_timeout: Duration::from_secs(10),
        ..Settings::default()
    }
}

/// The endpoint while it is served.
pub(crate) struct Status {
    pub(crate) register: Register,
    pub(crate) running: ServerHandle,
}

impl Status {
    pub(crate) fn start(
        register: Register,
        line: RouteReceiver,
        listeners: Vec<Listener>,
    ) -> weft::Result<Status> {
        let app = Site::new(register.clone(), line).with(site::security());
        let server = Server::new(app).settings(limits()).workers(1);
        let server = listeners.into_iter().fold(server, Server::listener);
        Ok(Status { register, running: server.start()? })
    }

    /// Leaves the sockets to another process.
    pub(crate) fn drain_after_handover(self) {
        self.running.drain_after_handover(PATIENCE, Duration::ZERO);
    }

    pub(crate) fn stop(self) {
        self.running.shutdown(PATIENCE);
    }
}
