//! A read of a file that waits for the disk.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;

use crate::disk::BlockingRead;
use crate::error::{Error, Result};
use crate::server::exchange::ResponseSink;

/// Reads a piece of a file on another thread, while the connection is driven.
pub(in crate::server) async fn run(
    sink: &mut impl ResponseSink,
    read: BlockingRead,
) -> Result<Bytes> {
    let mut reading = Box::pin(read.run());
    poll_fn(|cx| match reading.as_mut().poll(cx) {
        Poll::Pending => sink.poll_connection(cx).map(Err),
        Poll::Ready(piece) => Poll::Ready(piece.map_err(Error::from)),
    })
    .await
}
