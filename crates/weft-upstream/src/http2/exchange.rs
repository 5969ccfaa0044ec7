//! Sends a request in a stream and receives the head of its response.

use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::h2::client::ResponseFuture;
use ::h2::{Reason, RecvStream};
use http::HeaderMap;
use tokio::time::{Sleep, sleep};
use weft::header::Headers;
use weft::message::Version;
use weft::{Method, StatusCode};
use weft_proto::headers::HeadersBuilder;
use weft_proto::http1::client::{BodyLength, ResponseHead};

use super::stream_upload::StreamUpload;
use crate::base::inactivity_timer::InactivityTimer;
use crate::exchange::outbound_request::OutboundRequest;
use crate::gateway_error::GatewayError;
use crate::head::{forwarded_response as response, grpc};
use crate::pool::lease::StreamLease;
use crate::settings::proxy_settings::ProxySettings;

/// A response whose body has not been read.
pub(crate) struct Received {
    pub(crate) body: RecvStream,
    /// The sending side, if the body of the request was not sent completely.
    pub(crate) upload: Option<StreamUpload>,
    pub(crate) deadline: Option<Deadline>,
}

/// The end of the time that the client of a gRPC call waits, from `grpc-timeout`.
pub(crate) struct Deadline(Pin<Box<Sleep>>);

impl Deadline {
    pub(crate) fn new(time: Duration) -> Deadline {
        Deadline(Box::pin(sleep(time)))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

/// Sends `head` and the body of `outbound`, and waits for the head of the response.
pub(crate) async fn run(
    lease: &mut StreamLease,
    outbound: &mut OutboundRequest,
    head: http::Request<()>,
    settings: &ProxySettings,
) -> Result<(ResponseHead, Received), GatewayError> {
    let has_body = outbound.upload.is_some();
    if let Some(upload) = &mut outbound.upload {
        upload.record_for_retry();
    }
    let ready = poll_fn(|cx| lease.stream.send_request.poll_ready(cx)).await;
    ready.map_err(|error| classify(error, lease))?;
    let sent = lease.stream.send_request.send_request(head, !has_body);
    let (response, stream) = sent.map_err(|error| classify(error, lease))?;
    let deadline = grpc::timeout(&outbound.request).map(Deadline::new);
    let mut exchange = Exchange {
        response,
        upload: has_body.then(|| StreamUpload::new(stream)),
        timer: InactivityTimer::default(),
        deadline,
        interim_bytes: 0,
        lease,
        outbound,
        settings,
    };
    let (head, body) = poll_fn(|cx| exchange.poll(cx)).await?;
    let Exchange { upload, deadline, .. } = exchange;
    Ok((head, Received { body, upload, deadline }))
}

struct Exchange<'a> {
    response: ResponseFuture,
    /// `None` once the body was sent, or if it cannot be.
    upload: Option<StreamUpload>,
    timer: InactivityTimer,
    deadline: Option<Deadline>,
    /// Size of the interim responses, in bytes.
    interim_bytes: usize,
    lease: &'a StreamLease,
    outbound: &'a mut OutboundRequest,
    settings: &'a ProxySettings,
}

impl Exchange<'_> {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(ResponseHead, RecvStream), GatewayError>> {
        self.poll_upload(cx)?;
        self.poll_interim(cx)?;
        if let Poll::Ready(response) = Pin::new(&mut self.response).poll(cx) {
            return Poll::Ready(match response {
                Ok(response) => convert(response, self.outbound.request.method()),
                Err(error) => Err(classify(error, self.lease)),
            });
        }
        let waits_for_client =
            self.upload.as_ref().is_some_and(|upload| !upload.waits_for_window());
        match waits_for_client {
            true => self.outbound.wait.reset(),
            false => self.outbound.wait.start(),
        }
        if let Some(deadline) = &mut self.deadline {
            return deadline.poll(cx).map(|()| Err(GatewayError::Timeout("the deadline is over")));
        }
        // Time in which the client sends nothing does not count against the upstream.
        if waits_for_client {
            self.timer.stop();
            return Poll::Pending;
        }
        let elapsed = self.timer.poll_elapsed(self.settings.response_timeout, cx);
        elapsed.map(|()| {
            self.lease.stream.leave_silent_connection();
            Err(GatewayError::Timeout("timed out waiting for the response"))
        })
    }

    /// Sends the body as far as possible. After an error of the stream, its response has the
    /// reason.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), GatewayError> {
        let Some((sender, upload)) = self.upload.as_mut().zip(self.outbound.upload.as_mut()) else {
            return Ok(());
        };
        let waited_for_window = sender.waits_for_window();
        match sender.poll(cx, upload) {
            Poll::Pending => {
                // An upstream that takes a large body slowly is not silent.
                if waited_for_window && !sender.waits_for_window() {
                    self.timer.stop();
                    self.outbound.wait.reset();
                }
            }
            Poll::Ready(Err(error @ GatewayError::Client(_))) => return Err(error),
            Poll::Ready(_) => self.upload = None,
        }
        Ok(())
    }

    /// Forwards interim responses.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Result<(), GatewayError> {
        while let Poll::Ready(Some(Ok(interim))) = self.response.poll_informational(cx) {
            self.timer.stop();
            let (parts, ()) = interim.into_parts();
            self.interim_bytes += 16 + weft_proto::headers::text_len(&parts.headers);
            if self.interim_bytes > self.settings.max_response_head_bytes {
                return Err(GatewayError::invalid_response("too many interim responses"));
            }
            if parts.status != StatusCode::CONTINUE {
                let head = response_head(parts.status, &parts.headers, BodyLength::Sized(0))?;
                self.outbound.request.interim(response::interim(head));
            }
        }
        Ok(())
    }
}

fn convert(
    response: http::Response<RecvStream>,
    method: &Method,
) -> Result<(ResponseHead, RecvStream), GatewayError> {
    let (parts, body) = response.into_parts();
    let length = parts.headers.get(http::header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let length = match length {
        _ if body.is_end_stream() || *method == Method::HEAD => BodyLength::Sized(0),
        Some(length) => BodyLength::Sized(length),
        None => BodyLength::UntilClose,
    };
    Ok((response_head(parts.status, &parts.headers, length)?, body))
}

fn response_head(
    status: StatusCode,
    fields: &HeaderMap,
    length: BodyLength,
) -> Result<ResponseHead, GatewayError> {
    let (version, keep_alive) = (Version::HTTP_2, true);
    Ok(ResponseHead { status, version, headers: headers(fields)?, length, keep_alive })
}

/// Converts the fields of a head or a trailer section.
pub(crate) fn headers(fields: &HeaderMap) -> Result<Headers, GatewayError> {
    let headers = HeadersBuilder::with_capacity(weft_proto::headers::text_len(fields));
    let mut headers = headers.map_err(GatewayError::invalid_response)?;
    fields.iter().for_each(|(name, value)| headers.field(name.as_ref(), value.as_bytes()));
    Ok(headers.into_headers())
}

/// Determines the failure of a request without a response.
fn classify(error: ::h2::Error, lease: &StreamLease) -> GatewayError {
    let is_remote = error.is_remote();
    let lost = match error.reason() {
        // RFC 9113 §6.8 and §8.7: the stream is beyond the last one that the upstream has
        // processed.
        Some(_) if error.is_go_away() && is_remote => return not_processed(&error),
        Some(Reason::REFUSED_STREAM) if is_remote => return not_processed(&error),
        // This end has closed the connection because of an error of the upstream, which may have
        // been in the response to another request.
        Some(_) if error.is_go_away() && lease.stream.has_served_others() => {
            std::io::Error::other(error)
        }
        Some(_) => return GatewayError::BadResponse(format!("no response: {error}")),
        None => error.into_io().unwrap_or_else(|| ErrorKind::BrokenPipe.into()),
    };
    // Frames beyond a limit.
    if lost.kind() == ErrorKind::InvalidData {
        return GatewayError::BadResponse(format!("no response: {lost}"));
    }
    match lease.stream.is_reused {
        true => GatewayError::StaleConnection(lost),
        false => GatewayError::ConnectionLost(lost),
    }
}

fn not_processed(error: &::h2::Error) -> GatewayError {
    GatewayError::NotProcessed(format!("it has not processed the request: {error}"))
}
