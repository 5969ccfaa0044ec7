//! A server with automatic certificates: [`ServerExt::domain`].

use std::sync::Arc;

use weft::middleware::Canonical;
use weft::net::{Address, IntoAddress};
use weft::server::ServerHandle;
use weft::tls::{Tls, TlsSettings};
use weft::{Application, Error, ErrorKind, Middleware, Request, Response, Result, Server};

use crate::acme::Acme;
use crate::name::Name;
use crate::self_signed::self_signed;
use crate::settings::AcmeSettings;

/// Automatic certificates for a [`Server`].
pub trait ServerExt<A>: sealed::Sealed + Sized {
    /// Serves HTTPS with a certificate for a domain name. The certificate is ordered from Let's
    /// Encrypt, and renewed. By using it you accept the
    /// [terms](https://letsencrypt.org/repository/) of the authority.
    ///
    /// ```no_run
    /// use weft::{Request, Response, Server};
    /// use weft_acme::ServerExt;
    ///
    /// async fn hello(_: Request) -> Response { Response::text("Hello, world!\n") }
    ///
    /// fn main() -> weft::Result<()> { Server::new(hello).domain("example.org").run() }
    /// ```
    ///
    /// The server listens on the ports 80 and 443, which the authority must reach for its
    /// validation of the name (`tls-alpn-01`, then `http-01`). Requests without TLS are redirected
    /// to HTTPS with 308, also requests to listeners that were added before. A self-signed
    /// certificate is presented until the first order has ended, and to clients that send another
    /// name.
    ///
    /// Set workers, limits and hooks of the server before.
    ///
    /// Accounts and certificates are stored in [a directory](crate::FileStore::default_directory),
    /// so that a restart orders nothing again.
    fn domain(self, name: impl Into<String>) -> HttpsServer<A>;
}

impl<A: Application + 'static> ServerExt<A> for Server<A> {
    fn domain(self, name: impl Into<String>) -> HttpsServer<A> {
        let (settings, names) = (AcmeSettings::default(), vec![name.into()]);
        HttpsServer { server: self, names, settings, http: Vec::new(), https: Vec::new() }
    }
}

/// A server with automatic certificates before it is started; returned by [`ServerExt::domain`].
///
/// ```no_run
/// use std::sync::Arc;
///
/// use weft::{Request, Response, Server};
/// use weft_acme::{AcmeSettings, FileStore, LETS_ENCRYPT_STAGING, ServerExt};
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
    http: Vec<Result<Address>>,
    https: Vec<Result<Address>>,
}

impl<A: Application + 'static> HttpsServer<A> {
    /// Adds a domain name or an IP address with a certificate of its own.
    pub fn domain(mut self, name: impl Into<String>) -> HttpsServer<A> {
        self.names.push(name.into());
        self
    }

    /// Sets the authority, the store and all else about the orders. The names in `settings` are
    /// ordered as well.
    pub fn acme(mut self, settings: AcmeSettings) -> HttpsServer<A> {
        self.settings = settings;
        self
    }

    /// Adds an address for requests without TLS, in the forms of [`Server::listen`]. They are
    /// redirected to port 443.
    ///
    /// Default `:80`.
    pub fn listen(mut self, address: impl IntoAddress) -> HttpsServer<A> {
        self.http.push(address.into_address());
        self
    }

    /// Adds an address for TLS connections.
    ///
    /// Default `:443`. If it is another port, a proxy or a firewall must forward port 443 to it.
    pub fn listen_tls(mut self, address: impl IntoAddress) -> HttpsServer<A> {
        self.https.push(address.into_address());
        self
    }

    /// Starts the server on its own threads, and the orders in another thread, which ends with the
    /// server. Stored certificates are used at once.
    ///
    /// # Errors
    /// The errors of [`Server::start`] and [`Acme::order`]; [`Listen`](weft::ErrorKind::Listen) if
    /// an address cannot be bound, which needs permission for ports below 1024;
    /// [`InvalidSetting`](weft::ErrorKind::InvalidSetting) if a name is invalid.
    pub fn start(self) -> Result<ServerHandle> {
        self.into_server()?.start()
    }

    /// Starts the server and waits until it has stopped. This blocks the thread.
    ///
    /// # Errors
    /// The errors of [`start`](HttpsServer::start), and [`WouldBlock`](weft::ErrorKind::WouldBlock)
    /// in a future that a current-thread runtime polls.
    pub fn run(self) -> Result<()> {
        self.into_server()?.run()
    }

    /// Binds the addresses and starts the orders. A validation that arrives before the server has
    /// started waits in the queue of its listener. The orders end when the server is dropped.
    fn into_server(self) -> Result<Server<impl Application>> {
        let HttpsServer { server, names, mut settings, http, https } = self;
        for name in names {
            let parsed = name.parse::<Name>();
            let invalid =
                |error| Error::new(ErrorKind::InvalidSetting, format!("{name:?}: {error}"));
            settings.names.push(parsed.map_err(invalid)?);
        }
        let settings = settings.validated()?;
        let acme = Arc::new(Acme::new(&settings));
        acme.load(&settings);
        let tls = Tls::new(TlsSettings {
            identities: vec![self_signed(settings.names.iter().map(Name::to_string))?],
            named_identities: Some(acme.identities()),
            alpn_challenges: Some(acme.alpn_challenges()),
            ..TlsSettings::default()
        })?;
        let validations = acme.clone();
        let mut server = server.map_application(move |app| {
            weft::stack(app).with(Validations(validations.clone())).with(Canonical::new().https())
        });
        for address in or_default(http, ":80") {
            server = server.listen(address?)?;
        }
        for address in or_default(https, ":443") {
            server = server.listen_tls(address?, &tls)?;
        }
        acme.order(Some(settings))?;
        Ok(server)
    }
}

fn or_default(addresses: Vec<Result<Address>>, default: &str) -> Vec<Result<Address>> {
    if addresses.is_empty() { vec![default.parse()] } else { addresses }
}

/// Responds to validations by `http-01`. It owns the orders: they end with the last worker.
struct Validations(Arc<Acme>);

impl Middleware for Validations {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        if let Some(look_up) = self.0.look_up(&request) {
            look_up.await;
        }
        match self.0.respond(&request) {
            Some(response) => response,
            None => next.call(request).await,
        }
    }
}

/// The type that implements [`ServerExt`].
mod sealed {
    pub trait Sealed {}
    impl<A> Sealed for weft::Server<A> {}
}
