//! The body of a request, sent in a stream as far as the windows of the upstream permit.

use std::task::{Context, Poll, ready};

use ::h2::SendStream;
use bytes::Bytes;

use crate::exchange::upload::{Piece, Upload};
use crate::gateway_error::GatewayError;

/// The sending side of a stream.
pub(crate) struct StreamUpload {
    stream: SendStream<Bytes>,
    /// Data that waits for a window.
    data: Bytes,
    state: SendState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SendState {
    Sending,
    /// The data that waits is the last.
    Last,
    Done,
}

impl StreamUpload {
    pub(crate) fn new(stream: SendStream<Bytes>) -> StreamUpload {
        StreamUpload { stream, data: Bytes::new(), state: SendState::Sending }
    }

    /// Returns true if data waits for a window of the upstream.
    pub(crate) fn waits_for_window(&self) -> bool {
        !self.data.is_empty()
    }

    /// Sends what is available. Ready when the whole body was sent.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        upload: &mut Upload,
    ) -> Poll<Result<(), GatewayError>> {
        loop {
            ready!(self.poll_send_data(cx))?;
            if self.state != SendState::Sending {
                return Poll::Ready(Ok(()));
            }
            match ready!(upload.poll_piece(cx))? {
                Piece::Data(data) => {
                    self.data = data;
                    if upload.is_complete() {
                        self.state = SendState::Last;
                        if self.data.is_empty() {
                            return Poll::Ready(self.end());
                        }
                    }
                }
                Piece::Trailers(trailers) if !trailers.is_empty() => {
                    self.state = SendState::Done;
                    let sent = self.stream.send_trailers(trailers);
                    return Poll::Ready(sent.map_err(send_failure));
                }
                Piece::Trailers(_) | Piece::End => return Poll::Ready(self.end()),
            }
        }
    }

    fn end(&mut self) -> Result<(), GatewayError> {
        self.state = SendState::Done;
        self.stream.send_data(Bytes::new(), true).map_err(send_failure)
    }

    fn poll_send_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GatewayError>> {
        while !self.data.is_empty() {
            self.stream.reserve_capacity(self.data.len());
            while self.stream.capacity() == 0 {
                match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Poll::Ready(Err(send_failure(error))),
                    None => return Poll::Ready(Err(closed())),
                }
            }
            let data = self.data.split_to(self.stream.capacity().min(self.data.len()));
            let is_end = self.state == SendState::Last && self.data.is_empty();
            self.stream.send_data(data, is_end).map_err(send_failure)?;
            if is_end {
                self.state = SendState::Done;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The response may arrive nevertheless. If it does not, its error is reported in place of this
/// one.
fn send_failure(error: ::h2::Error) -> GatewayError {
    GatewayError::ConnectionLost(std::io::Error::other(error))
}

fn closed() -> GatewayError {
    GatewayError::ConnectionLost(std::io::ErrorKind::BrokenPipe.into())
}
