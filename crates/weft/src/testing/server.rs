//! Servers of tests.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::app::{Application, BoxApplication};
use crate::error::{Error, ErrorKind};
use crate::hooks::{Hooks, Record};
use crate::net::address::LocalAddress;
use crate::peer::Peer;
use crate::server::Server;
use crate::server::handle::ServerHandle;
use crate::trace::{SlowHandler, default_slow_handler_threshold};

/// A server for tests, on a free port of 127.0.0.1 and with one worker. When it is stopped or
/// dropped, a panic of the application becomes a panic of the test.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use weft::{Request, Response, testing::TestServer};
///
/// let server = TestServer::start(async |_: Request| Response::text("Hello\n"));
/// let mut client = TcpStream::connect(server.address()).unwrap();
/// client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
/// let mut response = String::new();
/// client.read_to_string(&mut response).unwrap();
/// assert!(response.ends_with("\r\n\r\nHello\n"));
/// server.stop();
/// ```
#[derive(Debug)]
pub struct TestServer {
    handle: Option<ServerHandle>,
    address: SocketAddr,
    panics: Panics,
}

/// Messages of the application's panics.
#[derive(Clone, Debug, Default)]
struct Panics(Arc<Mutex<Vec<String>>>);

/// The hooks of the server, and the record of panics.
struct PanicHooks {
    inner: Option<Rc<dyn Hooks>>,
    panics: Panics,
}

impl Hooks for PanicHooks {
    fn on_open(&self, peer: &Peer) -> bool {
        self.inner.as_ref().is_none_or(|hooks| hooks.on_open(peer))
    }

    fn on_close(&self, peer: &Peer) {
        self.inner.iter().for_each(|hooks| hooks.on_close(peer));
    }

    fn on_error(&self, peer: &Peer, error: &Error) {
        if error.kind() == ErrorKind::Panicked {
            self.panics.0.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
        }
        self.inner.iter().for_each(|hooks| hooks.on_error(peer, error));
    }

    fn on_slow_handler(&self, slow: &SlowHandler<'_>) {
        self.inner.iter().for_each(|hooks| hooks.on_slow_handler(slow));
    }

    fn slow_handler_threshold(&self) -> Duration {
        let inner = self.inner.as_ref().map(|hooks| hooks.slow_handler_threshold());
        inner.unwrap_or_else(default_slow_handler_threshold)
    }

    fn on_certificates_reloaded(&self) {
        self.inner.iter().for_each(|hooks| hooks.on_certificates_reloaded());
    }

    fn needs_records(&self) -> bool {
        self.inner.as_ref().is_some_and(|hooks| hooks.needs_records())
    }

    fn on_response(&self, record: &Record<'_>) {
        self.inner.iter().for_each(|hooks| hooks.on_response(record));
    }

    fn on_tunnel_end(&self, record: &Record<'_>) {
        self.inner.iter().for_each(|hooks| hooks.on_tunnel_end(record));
    }
}

impl TestServer {
    /// Starts a server for this application, with the default settings.
    ///
    /// The application is boxed, because the compiler translates the whole server again for each
    /// type of application, which would take most of the time of a build of many tests.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(app: impl Application + Clone + Send + 'static) -> TestServer {
        TestServer::from_server(Server::new(BoxApplication::new(app)))
    }

    /// Starts a configured server, which must have no address yet. It keeps its hooks.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn from_server<A: Application + 'static>(server: Server<A>) -> TestServer {
        let panics = Panics::default();
        let of_workers = panics.clone();
        let hooks = move |inner| PanicHooks { inner, panics: of_workers.clone() };
        let server = server.workers(1).wrap_hooks(hooks);
        let handle = server.listen("127.0.0.1:0").and_then(Server::start).expect("a server");
        let LocalAddress::Tcp(address) = handle.addresses()[0] else {
            unreachable!("the address is TCP")
        };
        TestServer { handle: Some(handle), address, panics }
    }

    /// Address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a path on this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stops the server when all requests are answered, at the latest after ten seconds.
    ///
    /// # Panics
    /// If the application has panicked.
    pub fn stop(mut self) {
        self.shutdown(Duration::from_secs(10));
    }

    fn shutdown(&mut self, grace: Duration) {
        let Some(handle) = self.handle.take() else { return };
        handle.shutdown(grace);
        let panics = self.panics.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Do not panic during a panic: that would abort the process.
        if let Some(first) = panics.first().filter(|_| !std::thread::panicking()) {
            panic!("{first}");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::request::Request;
    use crate::message::response::Response;
    use std::io::{Read, Write};

    #[test]
    fn panic_of_the_application_becomes_a_panic_of_the_test() {
        async fn odd(request: Request) -> Response {
            assert!(request.path() != "/odd", "the path is odd");
            Response::text("ok")
        }
        for (path, expected) in [("/", None), ("/odd", Some("the path is odd"))] {
            let server = TestServer::start(odd);
            let mut client = std::net::TcpStream::connect(server.address()).unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            client.read_to_end(&mut Vec::new()).unwrap();
            let ended = std::thread::spawn(|| server.stop()).join();
            let message = ended.err().map(|panic| panic.downcast::<String>().unwrap());
            assert_eq!(message.is_some(), expected.is_some());
            assert!(message.is_none_or(|message| message.contains(expected.unwrap())));
        }
    }
}
