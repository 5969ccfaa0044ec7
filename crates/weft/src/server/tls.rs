//! Listeners with TLS.

use crate::app::Application;
use crate::error::Result;
use crate::net::tls::Tls;
use crate::server::Server;

impl<A: Application + 'static> Server<A> {
    /// Listens on another address, of the same forms as in [`listen`](Server::listen), for
    /// connections that speak TLS.
    ///
    /// While the server runs it loads certificates anew when their files change. If that
    /// fails, [`Hooks::on_error`](crate::Hooks::on_error) is told, and the old ones serve on.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if that cannot be done; the message says why.
    pub fn listen_tls(self, address: impl ToString, tls: &Tls) -> Result<Server<A>> {
        self.listen_with(&address.to_string(), Some(tls.acceptor()))
    }
}
