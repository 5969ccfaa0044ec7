//! Sends a request and receives the head of its response, over one connection.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use weft::{Method, StatusCode};
use weft_proto::http1::client::ResponseHead;

use super::response_reader::{BodyReader, HeadReader};
use crate::connect::upstream_connection::INPUT_BYTES;
use crate::exchange::outbound_request::OutboundRequest;
use crate::exchange::upload::WaitingFor;
use crate::gateway_error::GatewayError;
use crate::head::forwarded_response as response;
use crate::pool::lease::ConnectionLease;
use crate::settings::proxy_settings::ProxySettings;
use crate::spool::buffer_space::BufferSpace;

/// Minimum free buffer space for a read of a response head, in bytes.
const MIN_READ_BYTES: usize = 18 << 10;

/// Minimum free buffer space, in bytes, while there is no memory for bodies: a read of a head also
/// receives the beginning of a body.
const SHORT_READ_BYTES: usize = 2 << 10;

/// Sends the buffered output, then the body, and waits for the head of the response. `space` is
/// that for bodies.
///
/// Without `async`, the future contains each argument once.
pub(super) fn run<'a>(
    lease: &'a mut ConnectionLease,
    outbound: &'a mut OutboundRequest,
    settings: &'a ProxySettings,
    space: &'a BufferSpace,
) -> impl Future<Output = Result<(ResponseHead, BodyReader), GatewayError>> {
    outbound.record_for_retry();
    let mut exchange =
        Exchange { lease, outbound, settings, space, head_reader: None, send_failure: None };
    poll_fn(move |cx| exchange.poll(cx))
}

struct Exchange<'a> {
    lease: &'a mut ConnectionLease,
    outbound: &'a mut OutboundRequest,
    settings: &'a ProxySettings,
    space: &'a BufferSpace,
    /// `None` unless a part of the response was received: many requests may wait for theirs, and
    /// most heads are received at once.
    head_reader: Option<Box<HeadReader>>,
    /// Reason why sending has failed. The response may have arrived nevertheless (RFC 9112 §9.5).
    send_failure: Option<Box<GatewayError>>,
}

impl Exchange<'_> {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(ResponseHead, BodyReader), GatewayError>> {
        // Only now: the next poll may be much later.
        let since = self.lease.connection.leased_at.take();
        loop {
            if self.send_failure.is_none()
                && let Poll::Ready(sent) = self.poll_send(cx)
            {
                match sent {
                    Ok(()) => self.outbound.set_sent(),
                    Err(GatewayError::ConnectionLost(error)) if is_closed_by_peer(&error) => {
                        self.send_failure = Some(Box::new(GatewayError::ConnectionLost(error)));
                    }
                    // The upstream waits for the rest of the request.
                    Err(failure) => return Poll::Ready(Err(failure)),
                }
            }
            match self.poll_head(cx) {
                Poll::Ready(Ok(Some(received))) => return Poll::Ready(Ok(received)),
                // After an interim response, the body may be sent.
                Poll::Ready(Ok(None)) => {}
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
                Poll::Pending => break,
            }
        }
        let upload = self.outbound.upload.as_ref();
        let waiting_for = upload.map_or(WaitingFor::Upstream, |upload| upload.waiting_for());
        // An upstream that takes a large body slowly is not silent.
        if self.lease.connection.take_progress() || waiting_for == WaitingFor::Client {
            self.lease.connection.timer.stop();
            self.outbound.wait.reset();
        }
        if waiting_for == WaitingFor::Upstream {
            self.outbound.wait.start();
        }
        match waiting_for {
            WaitingFor::Client => Poll::Pending,
            WaitingFor::Upstream => self
                .lease
                .connection
                .timer
                .poll_elapsed_since(since, self.settings.response_timeout, cx)
                .map(|()| Err(GatewayError::Timeout("timed out waiting for the response"))),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GatewayError>> {
        let connection = &mut self.lease.connection;
        match &mut self.outbound.upload {
            Some(upload) => upload.poll(cx, connection),
            None => connection.poll_send(cx).map_err(GatewayError::ConnectionLost),
        }
    }

    /// Reads the next head, and returns it with the parser for its body. An interim response is
    /// passed on; `None` is returned then.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<(ResponseHead, BodyReader)>, GatewayError>> {
        loop {
            if !self.lease.connection.input.is_empty() {
                let mut reader = match self.head_reader.take() {
                    Some(reader) => *reader,
                    None => HeadReader::new(self.settings, self.lease.upstream()),
                };
                let method: &Method = self.outbound.request.method();
                match reader.read(&mut self.lease.connection.input, method)? {
                    Some(head) if is_final(head.status) => {
                        self.lease.connection.timer.stop();
                        let body = reader.into_body_reader(&head);
                        return Poll::Ready(Ok(Some((head, body))));
                    }
                    Some(head) => {
                        self.head_reader = Some(Box::new(reader));
                        self.pass_on_interim(head);
                        return Poll::Ready(Ok(None));
                    }
                    None => self.head_reader = Some(Box::new(reader)),
                }
            }
            let max_bytes = if self.space.is_short() { SHORT_READ_BYTES } else { INPUT_BYTES };
            let error = match self.lease.poll_fill(cx, MIN_READ_BYTES, max_bytes) {
                Poll::Ready(Ok(1..)) => continue,
                Poll::Ready(Ok(0)) => io::Error::from(io::ErrorKind::UnexpectedEof),
                Poll::Ready(Err(error)) => error,
                Poll::Pending => return Poll::Pending,
            };
            return Poll::Ready(Err(self.classify_close(error)));
        }
    }

    fn pass_on_interim(&mut self, head: ResponseHead) {
        self.lease.connection.timer.stop();
        match (head.status, &mut self.outbound.upload) {
            (StatusCode::CONTINUE, Some(upload)) => upload.on_continue(),
            _ => self.outbound.request.interim(response::interim(head)),
        }
    }

    /// Determines the failure if the connection closes before the response.
    fn classify_close(&mut self, error: io::Error) -> GatewayError {
        let has_begun = self.head_reader.as_ref().is_some_and(|reader| reader.has_begun());
        if has_begun || !self.lease.connection.input.is_empty() {
            return GatewayError::invalid_response(
                "the connection closed in the middle of the response head",
            );
        }
        match self.send_failure.take().map_or(GatewayError::ConnectionLost(error), |it| *it) {
            GatewayError::ConnectionLost(error) if self.lease.is_reused => {
                GatewayError::StaleConnection(error)
            }
            failure => failure,
        }
    }
}

/// Returns true if no other response follows one with this status.
fn is_final(status: StatusCode) -> bool {
    !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS
}

/// Returns true if the peer has closed the connection, or at least its receiving direction.
fn is_closed_by_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
