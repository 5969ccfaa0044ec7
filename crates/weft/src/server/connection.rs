//! One connection of the server: its two directions, its deadline and its protocol state.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};

use bytes::Buf;

use crate::clock::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::message::connection::RequestContext;
use crate::message::upgrade::Upgraded;
use crate::net::buffers::INPUT_BYTES;
use crate::net::reader::Reader;
use crate::net::secure::SecureAcceptor;
use crate::net::transport::Transport;
use crate::net::writer::Writer;
use crate::server::upgraded::{PendingUpgrade, RawConnection};
use crate::settings::Settings;
use weft_proto::proxy_protocol::{self, ProxyHeader};

/// A connection, between requests or within one.
pub(crate) struct ServerConnection {
    /// `None` while it is lent to the body of a request.
    pub(crate) reader: Option<Reader>,
    pub(crate) writer: Writer,
    pub(crate) deadline: Deadline,
    /// State shared with its requests.
    pub(crate) shared: Arc<RequestContext>,
    /// Number of requests received.
    pub(crate) requests: u64,
    /// TLS configuration, until the handshake.
    pub(crate) tls: Option<Arc<dyn SecureAcceptor>>,
    /// Set if HTTP/2 was negotiated by ALPN.
    pub(crate) http2: bool,
    /// Handler that takes over the connection after the response, if any.
    pub(crate) upgrade: Option<PendingUpgrade>,
}

impl ServerConnection {
    pub(crate) fn new(
        transport: Transport,
        shared: Arc<RequestContext>,
        deadline: Deadline,
        settings: &Settings,
    ) -> ServerConnection {
        let (reader, write) = transport.split();
        ServerConnection {
            reader: Some(reader),
            writer: Writer::new(write, settings.max_write_buffer_bytes),
            deadline,
            shared,
            requests: 0,
            tls: None,
            http2: false,
            upgrade: None,
        }
    }

    /// Takes the connection and the handler that takes it over.
    pub(crate) fn hand_over(&mut self) -> Option<(PendingUpgrade, Upgraded)> {
        let (upgrade, reader) = (self.upgrade.take()?, self.reader.take()?);
        reader.half.register();
        let writer = self.writer.take();
        self.deadline.clear();
        let (peer, shutdown) = (self.shared.peer.clone(), self.shared.shutdown());
        Some((upgrade, Upgraded::new(RawConnection::new(reader, writer), peer, shutdown)))
    }

    /// Reads the PROXY header, which precedes the first request.
    pub(crate) async fn read_proxy_header(&mut self) -> Result<ProxyHeader> {
        let ServerConnection { reader: Some(reader), deadline, .. } = self else {
            unreachable!("the reader is not lent before the first request")
        };
        poll_fn(|cx| {
            loop {
                let header = proxy_protocol::read(&reader.buffer).map_err(|error| {
                    Error::new(ErrorKind::ProxyHeader, "no PROXY header").with_source(error)
                })?;
                if let Some(header) = header {
                    reader.buffer.advance(header.length);
                    return Poll::Ready(Ok(header));
                }
                match reader.poll_fill(cx, INPUT_BYTES) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(Error::disconnected())),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(Error::of_connection(error)));
                    }
                    Poll::Pending => {
                        ready!(deadline.poll_expired(cx));
                        let reason = "the PROXY header was received too slowly";
                        return Poll::Ready(Err(Error::new(ErrorKind::TooSlow, reason)));
                    }
                }
            }
        })
        .await
    }
}
