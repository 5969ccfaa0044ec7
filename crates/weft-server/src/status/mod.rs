//! The status endpoint: metrics of the server, for operators.
//!
//! Each worker has its own single-writer counters: for its connections (`worker`) and for the
//! requests of each route (`routes`). The metrics registry references all of them. A second, small
//! server in a thread of its own reads them for each request, adds them up to a `Snapshot`, and
//! serves that as text for Prometheus, as JSON, or as a page (`site`).
//!
//! Without a status endpoint nothing is counted.

mod cache; // stored responses: counts, lists, purges
mod config; // changes of the configuration
mod hosts; // the hosts that the endpoint serves
mod permission; // clients that may change something
mod process; // process metrics from the kernel
mod prometheus; // Snapshot → text format
mod registry; // the metrics registry
mod site; // the application of the endpoint
mod snapshot; // all metrics at one point in time
mod upstreams; // changes of upstreams
mod worker; // metrics of a worker's connections

use std::time::Duration;

use weft::net::Listener;
use weft::server::ServerHandle;
use weft::{Application, Server};

pub(crate) use self::registry::MetricsRegistry;

use self::site::Site;
use crate::config_change::ChangeSender;
use crate::open::active_plan::PlanReceiver;
use crate::open::application::ServedApplication;
use crate::sections::status::status_limits;

/// Time limit for open requests when the endpoint stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The running status endpoint.
pub(crate) struct Status {
    pub(crate) registry: MetricsRegistry,
    pub(crate) handle: ServerHandle,
}

impl Status {
    pub(crate) fn start(
        registry: MetricsRegistry,
        plans: PlanReceiver,
        changes: ChangeSender,
        listeners: Vec<Listener>,
    ) -> weft::Result<Status> {
        let site = Site::new(registry.clone(), plans, changes);
        let server = Server::per_worker(move || {
            let app = site.clone().wrap(site::security_headers());
            async { ServedApplication::other(app) }
        });
        let server = server.settings(status_limits()).workers(1);
        let server = listeners.into_iter().fold(server, Server::listener);
        Ok(Status { registry, handle: server.start()? })
    }

    /// Stops the endpoint after its sockets were handed over to another process.
    pub(crate) fn drain_after_handover(self) {
        self.handle.drain_after_handover(DRAIN_TIMEOUT, Duration::ZERO);
    }

    pub(crate) fn stop(self) {
        self.handle.shutdown(DRAIN_TIMEOUT);
    }
}
