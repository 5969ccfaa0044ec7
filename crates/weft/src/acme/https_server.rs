//! A server with automatic certificates: [`Server::domain`].

use std::sync::Arc;
use std::time::Duration;

use crate::acme::Acme;
use crate::acme::name::Name;
use crate::acme::settings::{AcmeSettings, invalid};
use crate::app::{Application, Middleware};
use crate::error::Result;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::Canonical;
use crate::net::tls::{Identity, Tls, TlsSettings};
use crate::server::handle::ServerHandle;
use crate::server::{Server, blocking};

impl<A: Application + 'static> Server<A> {
    /// Serves HTTPS with a certificate for a domain name, which is ordered from Let's Encrypt, and
    /// renewed. By using it you accept the [terms](https://letsencrypt.org/repository/) of the authority.
    ///
    /// ```no_run
    /// use weft::{Request, Response, Server};
    ///
    /// async fn hello(_: Request) -> Response { Response::text("Hello, world!\n") }
    ///
    /// fn main() -> weft::Result<()> { Server::new(hello).domain("example.org").run() }
    /// ```
    ///
    /// The server listens on the ports 80 and 443, which the authority must reach for its validation of
    /// the name (`tls-alpn-01`, then `http-01`). Requests without TLS are redirected to HTTPS with 308,
    /// those to listeners that were added before, too. A self-signed certificate is presented until the
    /// first order has ended, and to clients that send another name.
    ///
    /// Set workers, limits and hooks of the server before.
    ///
    /// Accounts and certificates are stored in [a directory](crate::acme::FileStore::default_directory),
    /// so that a restart orders nothing again.
    pub fn domain(self, name: impl Into<String>) -> HttpsServer<A> {
        let (settings, names) = (AcmeSettings::default(), vec![name.into()]);
        HttpsServer { server: self, names, settings, http: Vec::new(), https: Vec::new() }
    }
}

/// A server with automatic certificates before it is started; returned by [`Server::domain`].
///
/// ```no_run
/// use std::sync::Arc;
///
/// use weft::acme::{AcmeSettings, FileStore, LETS_ENCRYPT_STAGING};
/// use weft::{Request, Response, Server};
///
/// # fn main() -> weft::Result<()> {
/// Server::new(async |_: Request| Response::text("Hello\n"))
///     .domain("example.org")
///     .domain("www.example.org")
///     .acme(AcmeSettings {
///         directories: vec![LETS_ENCRYPT_STAGING.to_owned()],
///         email: Some("admin@example.org".to_owned()),
///         store: Arc::new(FileStore::new("/srv/certificates")),
///         ..AcmeSettings::default()
///     })
///     .run()
/// # }
/// ```
#[must_use = "a server does nothing until it is started"]
pub struct HttpsServer<A> {
    server: Server<A>,
    names: Vec<String>,
    settings: AcmeSettings,
    /// Empty: the default.
    http: Vec<String>,
    https: Vec<String>,
}

impl<A: Application + 'static> HttpsServer<A> {
    /// Adds a domain name or an IP address with a certificate of its own.
    pub fn domain(mut self, name: impl Into<String>) -> HttpsServer<A> {
        self.names.push(name.into());
        self
    }

    /// Sets the authority, the store and all else about the orders. The names in `settings` are ordered,
    /// too.
    pub fn acme(mut self, settings: AcmeSettings) -> HttpsServer<A> {
        self.settings = settings;
        self
    }

    /// Adds an address for requests without TLS, which are redirected, in the forms of
    /// [`Server::listen`]. The redirect leads to port 443.
    ///
    /// Default `:80`.
    pub fn listen(mut self, address: impl ToString) -> HttpsServer<A> {
        self.http.push(address.to_string());
        self
    }

    /// Adds an address for TLS connections.
    ///
    /// Default `:443`. On other ports, something in front must forward port 443 to them.
    pub fn listen_tls(mut self, address: impl ToString) -> HttpsServer<A> {
        self.https.push(address.to_string());
        self
    }

    /// Starts the server on its own threads, and the orders in another one, which ends with the server.
    /// Certificates of a former process are used at once.
    ///
    /// # Errors
    /// The errors of [`Server::start`] and [`Acme::order`]; [`Listen`](crate::ErrorKind::Listen) if an
    /// address cannot be bound, which needs permission for ports below 1024;
    /// [`InvalidSetting`](crate::ErrorKind::InvalidSetting) if a name is invalid.
    pub fn start(self) -> Result<ServerHandle> {
        let HttpsServer { server, names, mut settings, http, https } = self;
        for name in names {
            let parsed = name.parse::<Name>();
            settings.names.push(parsed.map_err(|error| invalid(format!("{name:?}: {error}")))?);
        }
        let settings = settings.validated()?;
        let acme = Arc::new(Acme::new(&settings));
        acme.load(&settings);
        let tls = Tls::new(TlsSettings {
            identities: vec![Identity::self_signed(settings.names.iter().map(Name::to_string))?],
            named_identities: Some(acme.identities()),
            alpn_challenges: Some(acme.alpn_challenges()),
            ..TlsSettings::default()
        })?;
        let validations = acme.clone();
        let mut server = server.map_application(move |app| {
            app.with(Validations(validations.clone())).with(Canonical::new().https())
        });
        for address in or_default(http, ":80") {
            server = server.listen(address)?;
        }
        for address in or_default(https, ":443") {
            server = server.listen_tls(address, &tls)?;
        }
        let handle = server.start()?;
        match acme.order(Some(settings)) {
            Ok(()) => Ok(handle),
            Err(error) => {
                handle.shutdown(Duration::ZERO);
                Err(error)
            }
        }
    }

    /// Starts the server and waits until it has stopped. This blocks the thread.
    ///
    /// # Errors
    /// The errors of [`start`](HttpsServer::start), and [`WouldBlock`](crate::ErrorKind::WouldBlock) in a
    /// future that a current-thread runtime polls.
    pub fn run(self) -> Result<()> {
        blocking::check_may_block()?;
        self.start()?.wait();
        Ok(())
    }
}

fn or_default(addresses: Vec<String>, default: &str) -> Vec<String> {
    if addresses.is_empty() { vec![default.to_owned()] } else { addresses }
}

/// Responds to validations by `http-01`. It owns the orders: they end with the last worker.
struct Validations(Arc<Acme>);

impl Middleware for Validations {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match self.0.respond(&request) {
            Some(response) => response,
            None => next.call(request).await,
        }
    }
}
