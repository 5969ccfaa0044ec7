//! Sockets and addresses to listen on.

use std::net::SocketAddr;

use crate::error::Result;
use crate::net::address::Address;
use crate::net::listen::Listener;
use crate::settings::Settings;

/// Listening sockets of the standard library, of tokio or of Weft, or an address such as
/// `"127.0.0.1:8080"`, `":8080"` or `"unix:/run/app.sock"`, for [`serve`](super::serve()). Sealed:
/// a [`Listener`] has conversions from other sockets.
pub trait IntoListeners: sealed::Sealed {
    /// Returns the sockets. An address is bound with the default
    /// [`backlog`](Settings::backlog).
    ///
    /// # Errors
    /// [`Listen`](crate::ErrorKind::Listen) if an address cannot be bound.
    fn into_listeners(self) -> Result<Vec<Listener>>;
}

impl IntoListeners for Vec<Listener> {
    fn into_listeners(self) -> Result<Vec<Listener>> {
        Ok(self)
    }
}

impl IntoListeners for Listener {
    fn into_listeners(self) -> Result<Vec<Listener>> {
        Ok(vec![self])
    }
}

impl IntoListeners for std::net::TcpListener {
    fn into_listeners(self) -> Result<Vec<Listener>> {
        Ok(vec![self.try_into()?])
    }
}

#[cfg(unix)]
impl IntoListeners for crate::sys::UnixListener {
    fn into_listeners(self) -> Result<Vec<Listener>> {
        Ok(vec![self.try_into()?])
    }
}

impl IntoListeners for tokio::net::TcpListener {
    fn into_listeners(self) -> Result<Vec<Listener>> {
        Ok(vec![self.try_into()?])
    }
}

#[cfg(unix)]
impl IntoListeners for tokio::net::UnixListener {
    fn into_listeners(self) -> Result<Vec<Listener>> {
        Ok(vec![self.try_into()?])
    }
}

impl IntoListeners for &str {
    fn into_listeners(self) -> Result<Vec<Listener>> {
        Listener::bind(&self.parse::<Address>()?, &Settings::default())
    }
}

impl IntoListeners for String {
    fn into_listeners(self) -> Result<Vec<Listener>> {
        self.as_str().into_listeners()
    }
}

impl IntoListeners for SocketAddr {
    fn into_listeners(self) -> Result<Vec<Listener>> {
        self.to_string().into_listeners()
    }
}

/// The types that implement [`IntoListeners`].
mod sealed {
    pub trait Sealed {}
    impl Sealed for Vec<super::Listener> {}
    impl Sealed for super::Listener {}
    impl Sealed for std::net::TcpListener {}
    impl Sealed for tokio::net::TcpListener {}
    #[cfg(unix)]
    impl Sealed for crate::sys::UnixListener {}
    #[cfg(unix)]
    impl Sealed for tokio::net::UnixListener {}
    impl Sealed for &str {}
    impl Sealed for String {}
    impl Sealed for super::SocketAddr {}
}
