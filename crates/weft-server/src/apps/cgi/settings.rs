//! Settings of a route to CGI scripts: all limits and timeouts in one plain struct.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weft::net::IpNetwork;
use weft_upstream::script::ScriptVariable;
use weft_upstream::spool::{BufferSpace, SpoolLimits};

/// Location, environment and limits of CGI scripts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CgiSettings {
    /// Directory of the scripts, or one script that handles all paths.
    pub(crate) root: PathBuf,

    /// Index script of a directory. Default none: a path that names a directory is not found.
    pub(crate) index: Option<String>,

    /// Patterns of the scripts that are run. Default none: all scripts.
    pub(crate) scripts: Option<Vec<String>>,

    /// Environment variables in addition to the variables of RFC 3875, which they override. Default
    /// none: scripts inherit only `PATH` from the server's environment.
    pub(crate) environment: Vec<ScriptVariable>,

    /// Time limit for the head of the response; the script is then terminated, and the client gets
    /// 504. Progress of the request body restarts the timeout, and time spent waiting for the
    /// client does not count. Default 60 s, as for upstreams.
    pub(crate) timeout: Duration,

    /// Time limit for each pause in the response body; the script is then terminated, and the
    /// response is truncated. Also the time limit for a script that keeps running after its
    /// response is complete. Time spent waiting for the client does not count. Default 60 s.
    pub(crate) body_timeout: Duration,

    /// Maximum number of scripts that run at the same time, in all workers together; further
    /// requests queue. Default 64: each is a process, most often an interpreter.
    pub(crate) max_processes: usize,

    /// Maximum number of these scripts that run for one client at the same time; its further
    /// requests queue, without delaying requests of other clients. A client is an IPv4 address or
    /// an IPv6 /64 network; clients on Unix sockets are not limited. Default 0: half of
    /// [`max_processes`](CgiSettings::max_processes).
    pub(crate) max_processes_per_client: usize,

    /// Proxies in front of the server, which are not limited: they forward the requests of clients
    /// without their addresses. Default none.
    pub(crate) trusted: Vec<IpNetwork>,

    /// Maximum number of queued requests; further requests get 503 with `Retry-After`. One client
    /// may have the same share of them as of the scripts. Default 64.
    pub(crate) max_queued: usize,

    /// Maximum time in the queue; a request then gets 503. Default 5 s.
    pub(crate) queue_timeout: Duration,

    /// Maximum size of a request body, in bytes; larger: 413. Default 16 MiB, as for all routes.
    pub(crate) max_body_bytes: u64,

    /// Maximum size of a request body without `Content-Length`, in bytes. `CONTENT_LENGTH` has to
    /// be set before the script starts (RFC 3875 §4.1.2), so the body is always buffered. Default
    /// 16 MiB.
    pub(crate) max_spooled_bytes: u64,

    /// Receive the body of a request before the script is started, so that slow clients occupy no
    /// process. Default true.
    pub(crate) buffer_requests: bool,

    /// Receive the body of a response as fast as the script writes it, so that slow clients occupy
    /// no process. Event streams are never buffered. Default true.
    pub(crate) buffer_responses: bool,

    /// Maximum memory of a buffered request body, in bytes; more is stored in an unnamed file in
    /// `TMPDIR` or /tmp. Default 16 KiB, as for upstreams.
    pub(crate) request_buffer_bytes: usize,

    /// Maximum memory of a buffered response body, in bytes; more is stored in such a file. Default
    /// 16 KiB, as for upstreams.
    pub(crate) response_buffer_bytes: usize,

    /// Maximum size of the temporary file of a buffered body, in bytes; more is streamed. 0: none
    /// is used. Default 1 GiB, as for upstreams.
    pub(crate) max_temp_file_bytes: u64,

    /// Maximum size of a response head, in bytes; a larger head gets 502. Default 64 KiB.
    pub(crate) max_head_bytes: usize,
}

impl CgiSettings {
    /// Returns the limits of a buffered body.
    pub(super) fn spool_limits(
        &self,
        memory_bytes: usize,
        space: &Arc<BufferSpace>,
    ) -> Arc<SpoolLimits> {
        let (max_file_bytes, space) = (self.max_temp_file_bytes, space.clone());
        Arc::new(SpoolLimits { memory_bytes, max_file_bytes, space })
    }
}

impl Default for CgiSettings {
    fn default() -> CgiSettings {
        CgiSettings {
            root: PathBuf::new(),
            index: None,
            scripts: None,
            environment: Vec::new(),
            timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            max_processes: 64,
            max_processes_per_client: 0,
            trusted: Vec::new(),
            max_queued: 64,
            queue_timeout: Duration::from_secs(5),
            max_body_bytes: 16 << 20,
            max_spooled_bytes: 16 << 20,
            buffer_requests: true,
            buffer_responses: true,
            request_buffer_bytes: 16 << 10,
            response_buffer_bytes: 16 << 10,
            max_temp_file_bytes: 1 << 30,
            max_head_bytes: 64 << 10,
        }
    }
}
