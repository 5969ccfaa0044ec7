//! The program as a reverse proxy.

use std::io::Write;
use std::net::SocketAddr;

use super::{Weft, weft};

/// A server with one worker that forwards all requests. A panic of it becomes a panic of the test.
pub struct Proxy(Weft);

impl Proxy {
    /// Starts a proxy to these upstreams, with further options of the route in TOML.
    #[track_caller]
    pub fn start(urls: &str, options: &str) -> Proxy {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let comma = if options.is_empty() { "" } else { "," };
        let route = format!("{{ proxy = \"{urls}\"{comma} {options} }}");
        write!(file, "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\"/\" = {route}\n").unwrap();
        let mut command = weft(["--no-log", "--workers", "1", "--config"]);
        Proxy(Weft::start(command.arg(file.path())))
    }

    pub fn stderr(&self) -> String {
        self.0.stderr()
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let stderr = self.0.stderr();
        assert!(std::thread::panicking() || !stderr.contains("panicked"), "{stderr}");
    }
}
