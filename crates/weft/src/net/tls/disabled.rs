//! Replacement for TLS when the feature is disabled: types without values.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::ReadBuf;

use crate::error::Error;
use crate::net::writer;

#[derive(Clone, Debug)]
pub(crate) enum Tls {}

pub(crate) enum ReadHalf {}

pub(crate) enum WriteHalf {}

impl Tls {
    pub(crate) async fn reload_on_change(self, _: impl Fn(&Error)) {
        match self {}
    }

    pub(crate) fn ptr_eq(&self, _: &Tls) -> bool {
        match *self {}
    }
}

impl ReadHalf {
    pub(crate) fn poll_readable(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn poll_fill(
        &mut self,
        _: &mut Context<'_>,
        _: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match *self {}
    }
}

impl WriteHalf {
    pub(crate) fn plain(&self) -> &writer::WriteHalf {
        match *self {}
    }

    pub(crate) fn into_plain(self) -> writer::WriteHalf {
        match self {}
    }

    pub(crate) fn has_unsent_records(&self) -> bool {
        match *self {}
    }

    pub(crate) fn send_close_notify(&mut self) {
        match *self {}
    }

    pub(crate) fn write_ignoring_readiness(&mut self) -> Option<usize> {
        match *self {}
    }

    pub(crate) fn poll_send(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match *self {}
    }

    pub(crate) fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        _: &mut Context<'_>,
        _: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match *self {}
    }
}
