//! A request and the head of its response, over one connection.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use weft::client::{Head, HeadReader};
use weft::{Method, Request, StatusCode};

use super::failure::Failure;
use super::pool::Lease;
use super::request::Wants;
use super::response;
use super::settings::Settings;
use super::upload::{Turn, Upload};
use super::wire::Wire;

/// A read of a head has at least so much room.
const LEAST_ROOM: usize = 1 << 10;

/// A request, and what has to be known of it while it is passed on.
pub(super) struct Order {
    /// Without its body.
    pub(super) request: Request,
    pub(super) wants: Wants,
    /// That of the body, if it is known.
    pub(super) length: Option<u64>,
    /// `None` if there is no body.
    pub(super) upload: Option<Box<Upload>>,
}

impl Order {
    /// Whether it may be sent once more although it may have arrived (RFC 9110 §9.2.2).
    pub(super) fn can_be_repeated(&self) -> bool {
        self.request.method().is_idempotent() && self.upload.is_none()
    }
}

/// Sends what is gathered, then the body, and waits for the head of the response.
pub(super) async fn run(
    lease: &mut Lease,
    order: &mut Order,
    settings: &Settings,
) -> Result<Head, Failure> {
    let mut exchange = Exchange {
        heads: HeadReader::new(settings.max_response_head_bytes),
        patience: settings.response_timeout,
        is_reused: lease.is_reused,
        broken: None,
        wire: &mut lease.wire,
        order,
    };
    let head = poll_fn(|cx| exchange.poll(cx)).await;
    lease.wire.clock.stop();
    head
}

struct Exchange<'a> {
    wire: &'a mut Wire,
    order: &'a mut Order,
    heads: HeadReader,
    patience: Duration,
    is_reused: bool,
    /// Why nothing more can be sent. An answer may have come all the same (RFC 9112 §9.5).
    broken: Option<Failure>,
}

impl Exchange<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Failure>> {
        loop {
            if self.broken.is_none()
                && let Poll::Ready(Err(failure)) = self.poll_send(cx)
            {
                match failure {
                    Failure::Client(_) => return Poll::Ready(Err(failure)),
                    failure => self.broken = Some(failure),
                }
            }
            let Poll::Ready(head) = self.poll_head(cx) else { break };
            let head = head?;
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Poll::Ready(Ok(head));
            }
            self.wire.clock.stop();
            match (head.status, &mut self.order.upload) {
                (StatusCode::CONTINUE, Some(upload)) => upload.release(),
                _ => self.order.request.interim(response::interim(&head)),
            }
        }
        let (turn, has_moved) = match &mut self.order.upload {
            Some(upload) => upload.turn(),
            None => (Turn::Upstream, false),
        };
        if has_moved || turn == Turn::Client {
            self.wire.clock.stop();
        }
        match turn {
            Turn::Client => Poll::Pending,
            Turn::Upstream => {
                self.wire.clock.poll_over(self.patience, cx).map(|()| Err(Failure::TooSlow))
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        match &mut self.order.upload {
            Some(upload) => upload.poll(cx, self.wire),
            None => self.wire.poll_send(cx).map_err(Failure::Broken),
        }
    }

    /// The next head, interim or not.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Failure>> {
        loop {
            if !self.wire.input.is_empty() {
                let method: &Method = self.order.request.method();
                let head = self.heads.read(&mut self.wire.input, method);
                let head = head.map_err(|error| Failure::BadAnswer(error.to_string()))?;
                if let Some(head) = head {
                    return Poll::Ready(Ok(head));
                }
            }
            let ended = match ready!(self.wire.poll_fill(cx, LEAST_ROOM)) {
                Ok(1..) => continue,
                Ok(0) => io::Error::from(io::ErrorKind::UnexpectedEof),
                Err(error) => error,
            };
            return Poll::Ready(Err(self.ended(ended)));
        }
    }

    /// What it means that the connection has ended before the response.
    fn ended(&mut self, error: io::Error) -> Failure {
        if !self.wire.input.is_empty() {
            return Failure::BadAnswer("the connection ended in the middle of a head".to_owned());
        }
        match self.broken.take().unwrap_or(Failure::Broken(error)) {
            Failure::Broken(error) if self.is_reused => Failure::Stale(error),
            failure => failure,
        }
    }
}
