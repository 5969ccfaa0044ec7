//! Replacement for TLS when the feature is disabled: types without values.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::ReadBuf;

use crate::conn::{self, Connection};
use crate::error::Error;
use crate::send;
use crate::worker::Worker;

#[derive(Clone, Debug)]
pub(crate) enum Tls {}

#[derive(Debug)]
pub(crate) enum Session {}

pub(crate) enum ReadHalf {}

pub(crate) enum WriteHalf {}

#[derive(Default)]
pub(crate) struct Turns {}

impl Tls {
    pub(crate) async fn keep_current(self, _: impl Fn(&Error)) {
        match self {}
    }

    pub(crate) fn ptr_eq(&self, _: &Tls) -> bool {
        match *self {}
    }

    pub(crate) async fn shake_hands<A>(&self, conn: &mut Connection, worker: &Worker<A>) -> bool {
        // Uses items that only a handshake needs, so that they are not reported as dead code.
        let _ = (&worker.turns, |session| conn.shared.secured(session));
        let _ = (conn::ReadHalf::Tls, conn::ReadHalf::Nothing, send::WriteHalf::Tls);
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
    pub(crate) fn plain(&self) -> &send::WriteHalf {
        match *self {}
    }

    pub(crate) fn into_plain(self) -> send::WriteHalf {
        match self {}
    }

    pub(crate) fn holds_back(&self) -> bool {
        match *self {}
    }

    pub(crate) fn say_goodbye(&mut self) {
        match *self {}
    }

    pub(crate) fn press(&mut self) -> Option<usize> {
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
