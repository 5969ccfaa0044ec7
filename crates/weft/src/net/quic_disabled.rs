//! QUIC in a build without the feature `http3`: no socket exists.

use std::net::SocketAddr;

use crate::error::{Error, ErrorKind, Result};
use crate::sys::OwnedFd;

/// A UDP socket. No value of this type exists.
#[derive(Debug)]
pub(crate) enum QuicSocket {}

impl QuicSocket {
    pub(crate) fn bind_all(_: SocketAddr, _: bool, _: usize) -> Result<Vec<QuicSocket>> {
        Ok(Vec::new())
    }

    pub(crate) fn inherited(_: OwnedFd, _: SocketAddr) -> Result<QuicSocket> {
        Err(Error::new(ErrorKind::Listen, "this build has no HTTP/3"))
    }
}
