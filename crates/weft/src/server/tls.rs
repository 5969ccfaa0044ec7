//! Listeners with TLS.

use crate::app::Application;
use crate::error::Result;
use crate::net::IntoAddress;
use crate::net::tls::Tls;
use crate::server::Server;

impl<A: Application + 'static> Server<A> {
    /// Adds a listener for TLS connections. The address has the same forms as in
    /// [`listen`](Server::listen).
    ///
    /// A running server reloads certificates when their files change. If that fails,
    /// [`Hooks::on_error`](crate::Hooks::on_error) is called, and the previous certificates stay in
    /// use.
    ///
    /// # Errors
    /// [`Listen`](crate::ErrorKind::Listen) if the address is invalid or cannot be bound; the
    /// message gives the reason.
    pub fn listen_tls(self, address: impl IntoAddress, tls: &Tls) -> Result<Server<A>> {
        self.listen_with(&address.into_address()?, Some(tls.acceptor()))
    }
}
