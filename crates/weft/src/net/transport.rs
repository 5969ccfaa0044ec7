//! The transport of a connection, before it is split into its directions.

use std::sync::Arc;

use bytes::BytesMut;

use crate::net::reader::{ReadHalf, Reader};
use crate::net::socket::Socket;
use crate::net::writer::WriteHalf;
use crate::stream::Io;

/// The byte stream of a connection, in both directions.
pub(crate) enum Transport {
    Socket(Socket),
    /// Any other stream, such as an in-memory pipe.
    Other(Box<dyn Io>),
}

impl Transport {
    /// Splits the transport into its two directions.
    pub(crate) fn split(self) -> (Reader, WriteHalf) {
        let (read, write) = match self {
            Transport::Socket(socket) => {
                let socket = Arc::new(socket);
                (ReadHalf::Socket(socket.clone()), WriteHalf::Socket(socket))
            }
            Transport::Other(stream) => {
                let (read, write) = tokio::io::split(stream);
                (ReadHalf::Other(read), WriteHalf::Other(write))
            }
        };
        (Reader { half: read, buffer: BytesMut::new() }, write)
    }
}
