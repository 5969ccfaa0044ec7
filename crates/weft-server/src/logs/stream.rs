//! The access log of a stream.

use std::net::SocketAddr;
use std::sync::Arc;

use weft::log::client_network;

use super::sink::LineSender;

/// The access log of one or more streams, whose threads share its buffer.
#[derive(Clone)]
pub(crate) struct StreamLog {
    sender: Arc<LineSender>,
    /// Networks of clients are logged in place of their addresses.
    masks_addresses: bool,
}

impl StreamLog {
    pub(super) fn new(sender: Arc<LineSender>, masks_addresses: bool) -> StreamLog {
        StreamLog { sender, masks_addresses }
    }

    /// Appends a line, under the lock of the buffer.
    pub(crate) fn append(&self, compose: impl FnOnce(&mut Vec<u8>)) {
        self.sender.append(compose);
    }

    /// Returns the address of a client as lines have it.
    pub(crate) fn shown_client(&self, client: SocketAddr) -> SocketAddr {
        match self.masks_addresses {
            true => SocketAddr::new(client_network(client.ip()), client.port()),
            false => client,
        }
    }
}
