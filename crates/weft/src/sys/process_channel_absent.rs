//! A channel of datagrams between two processes, which this system does not have.

use std::convert::Infallible;
use std::io;
use std::task::{Context, Poll};

use super::types::OwnedFd;

/// One end of a channel. No value of this type exists.
pub(crate) struct ProcessChannel(Infallible);

impl ProcessChannel {
    pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this system cannot pass HTTP/3 connections to another process: restart the server instead",
        ))
    }

    pub(crate) fn register(_: OwnedFd) -> io::Result<ProcessChannel> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn send_or_discard(&self, _: &[u8]) {
        match self.0 {}
    }

    pub(crate) fn poll_receive<'a>(
        &self,
        _: &mut Context<'_>,
        _: &'a mut [u8],
    ) -> Poll<Option<&'a [u8]>> {
        match self.0 {}
    }
}
