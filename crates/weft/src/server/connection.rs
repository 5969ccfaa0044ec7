//! One connection of the server: its two directions, its deadline, its place in the protocol.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};

use bytes::Buf;

use crate::clock::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::message::request::Shared;
use crate::message::upgrade::{Upgrade, Upgraded};
use crate::net::buffers::INPUT_BYTES;
use crate::net::reader::{Reader, Transport};
use crate::net::secure::SecureAcceptor;
use crate::net::writer::Writer;
use crate::server::upgraded::RawConnection;
use crate::settings::Settings;
use weft_proto::proxy_protocol::{self, ProxyHeader};

/// A connection, between requests or within one.
pub(crate) struct Connection {
    /// `None` while the body of a request has it.
    pub(crate) reader: Option<Reader>,
    pub(crate) writer: Writer,
    pub(crate) deadline: Deadline,
    /// What its requests know of it.
    pub(crate) shared: Arc<Shared>,
    /// How many requests it brought.
    pub(crate) requests: u64,
    /// By which it is to be secured, before anything else.
    pub(crate) tls: Option<Arc<dyn SecureAcceptor>>,
    /// Whether the client speaks HTTP/2 here.
    pub(crate) http2: bool,
    /// Who gets it when the last response is out, if that is somebody.
    pub(crate) upgrade: Option<Upgrade>,
}

impl Connection {
    pub(crate) fn new(
        transport: Transport,
        shared: Arc<Shared>,
        deadline: Deadline,
        settings: &Settings,
    ) -> Connection {
        let (reader, write) = transport.split();
        Connection {
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

    /// What is handed over, and to whom.
    pub(crate) fn hand_over(&mut self) -> Option<(Upgrade, Upgraded)> {
        let (upgrade, reader) = (self.upgrade.take()?, self.reader.take()?);
        let writer = self.writer.take();
        self.deadline.clear();
        Some((upgrade, Upgraded::new(RawConnection::new(reader, writer), self.shared.clone())))
    }

    /// Reads what a proxy says of its client, before the first request.
    pub(crate) async fn preface(&mut self) -> Result<ProxyHeader> {
        let Connection { reader: Some(reader), deadline, .. } = self else {
            unreachable!("no body has the reader yet")
        };
        poll_fn(|cx| {
            loop {
                if let Some(preface) = proxy_protocol::read(&reader.buffer)? {
                    reader.buffer.advance(preface.length);
                    return Poll::Ready(Ok(preface));
                }
                match reader.poll_fill(cx, INPUT_BYTES) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(Error::disconnected())),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                    Poll::Pending => {
                        ready!(deadline.poll_expired(cx));
                        let reason = "the PROXY header came too slowly";
                        return Poll::Ready(Err(Error::new(ErrorKind::TooSlow, reason)));
                    }
                }
            }
        })
        .await
    }
}
