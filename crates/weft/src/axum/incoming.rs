//! Connections, as the types of `ConnectInfo` see them.

use std::net::{Ipv4Addr, SocketAddr};

use ::axum::extract::connect_info::Connected;

use crate::message::connection::Connection;
use crate::peer::{Peer, TlsSession};

/// The connection of a request, for types that implement axum's
/// [`Connected`](::axum::extract::connect_info::Connected). It takes the place of
/// `axum::serve::IncomingStream`.
///
/// ```
/// use axum::Router;
/// use axum::extract::ConnectInfo;
/// use axum::extract::connect_info::Connected;
/// use axum::routing::get;
/// use weft::axum::IncomingStream;
///
/// #[derive(Clone)]
/// struct Client {
///     address: String,
///     is_secure: bool,
/// }
///
/// impl Connected<IncomingStream<'_>> for Client {
///     fn connect_info(stream: IncomingStream<'_>) -> Client {
///         let address = format!("{:?}", stream.remote_addr());
///         Client { address, is_secure: stream.tls().is_some() }
///     }
/// }
///
/// let handler = async |ConnectInfo(client): ConnectInfo<Client>| {
///     format!("{} {}", client.address, client.is_secure)
/// };
/// let router = Router::new().route("/", get(handler));
/// let app = weft::axum::app(router.into_make_service_with_connect_info::<Client>());
/// weft::testing::get(app, "/").assert_text("None false");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct IncomingStream<'a> {
    connection: &'a Connection,
}

impl<'a> IncomingStream<'a> {
    pub(super) fn new(connection: &'a Connection) -> IncomingStream<'a> {
        IncomingStream { connection }
    }

    /// The address of the peer, or of the client of a proxy if middleware has
    /// [set](crate::Request::set_peer) it. A Unix socket has none.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.connection.peer().address()
    }

    /// The address of the server's end of the connection.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.connection.peer().local_address()
    }

    /// Negotiated TLS parameters, if the connection is encrypted.
    pub fn tls(&self) -> Option<&'a TlsSession> {
        self.connection.peer().tls()
    }

    /// The connection itself, with the peer and the shutdown state of the server.
    pub fn connection(&self) -> &'a Connection {
        self.connection
    }
}

/// The address of the peer; `0.0.0.0:0` for a Unix socket, which has none.
impl Connected<IncomingStream<'_>> for SocketAddr {
    fn connect_info(stream: IncomingStream<'_>) -> SocketAddr {
        stream.remote_addr().unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into())
    }
}

/// The peer, with its TLS session.
impl Connected<IncomingStream<'_>> for Peer {
    fn connect_info(stream: IncomingStream<'_>) -> Peer {
        stream.connection.peer().clone()
    }
}
