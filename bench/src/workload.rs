//! A workload: a request, its load generator, and the servers that are measured with it.

use crate::load::{Load, Wrk};
use crate::peers;
use crate::request::RequestSpec;

pub struct Workload {
    pub name: &'static str,
    pub title: &'static str,
    /// A description for the report.
    pub note: &'static str,
    /// The compared servers, Weft first.
    pub peers: &'static [&'static str],
    pub request: RequestSpec,
    pub load: Load,
    /// The number of workers of each server.
    pub workers: Workers,
}

pub enum Workers {
    One,
    OneAndTwo,
    /// Each number from one to the number of CPUs for servers.
    UpToAll,
}

pub const fn wrk(connections: u32) -> Load {
    Load::Wrk(Wrk::new(connections))
}

impl Workload {
    /// Returns the number of CPUs for a server with this many workers. The comparison of two
    /// workers with one uses two CPUs in both cases.
    pub fn cores(&self, workers: usize) -> usize {
        match self.workers {
            Workers::OneAndTwo => 2,
            Workers::One | Workers::UpToAll => workers,
        }
    }

    /// Returns the upstream server of a reverse proxy. The lower bound has only one response.
    pub fn upstream(&self) -> &'static str {
        match self.request.path {
            "/proxy/memory" => peers::UPSTREAM,
            "/proxy/grpc/Unary" => "canned-unary",
            "/proxy/grpc/Stream" => "canned-stream",
            "/proxy/fastcgi" => "canned-fastcgi",
            _ => peers::LARGE_UPSTREAM,
        }
    }

    /// Returns the numbers of workers to measure.
    pub fn worker_counts(&self, server_cpus: usize) -> Vec<usize> {
        match self.workers {
            Workers::One => vec![1],
            Workers::OneAndTwo => vec![1, 2],
            Workers::UpToAll => (1..=server_cpus).collect(),
        }
    }
}
