//! A request on its way, and what it means that a try has come to nothing.

use std::sync::Arc;

use hyper::Request as Message;
use weft::{Request, StatusCode, Version};

use super::failure::Failure;
use super::interim::Interim;
use super::pool::Lease;
use super::request::{Wants, can_be_repeated};
use super::upload::{RequestBody, Turn, Upload};

/// A request, and what has to be known of it while it is passed on.
pub(super) struct Order {
    /// Without its body.
    pub(super) request: Request,
    pub(super) wants: Wants,
    /// That of the body, if it is known.
    pub(super) length: Option<u64>,
    /// `None` if there is no body.
    pub(super) upload: Option<Arc<Upload>>,
}

/// A try that has come to nothing.
pub(super) struct Failed {
    pub(super) failure: Failure,
    /// What can be sent once more.
    pub(super) message: Option<RequestBody>,
}

impl Failed {
    pub(super) fn for_good(failure: Failure) -> Failed {
        Failed { failure, message: None }
    }

    /// What it means on this connection, if nothing of a response has come.
    pub(super) fn over(self, lease: &Lease, order: &Order) -> Failed {
        let Failed { failure: Failure::BadAnswer(error), message } = self else { return self };
        if error.is_parse() {
            return Failed::for_good(Failure::BadAnswer(error));
        }
        let request = &order.request;
        let may_repeat = can_be_repeated(request.method(), order.length);
        let message = message.or_else(|| may_repeat.then_some(RequestBody::Empty));
        let failure = match lease.is_reused {
            true => Failure::Stale(error),
            false => Failure::BadAnswer(error),
        };
        Failed { failure, message }
    }
}

impl Order {
    /// Whose turn it is.
    pub(super) fn turn(&self) -> Turn {
        self.upload.as_ref().map_or(Turn::Upstream(0), |upload| upload.turn())
    }

    /// What it means that the connection has failed.
    pub(super) fn failed(&self, error: hyper::Error, unsent: Option<RequestBody>) -> Failed {
        if let Some(error) = self.upload.as_ref().and_then(|upload| upload.take_error()) {
            return Failed::for_good(Failure::Client(error));
        }
        Failed { failure: Failure::BadAnswer(error), message: unsent }
    }

    /// Has interim responses told to this request.
    pub(super) fn listen_for_interim(&self, message: &mut Message<RequestBody>) -> Arc<Interim> {
        let interim = Arc::new(Interim::default());
        if self.request.version() != Version::HTTP_10 {
            let (told, upload) = (interim.clone(), self.upload.clone());
            hyper::ext::on_informational(message, move |response| {
                match (response.status(), &upload) {
                    (StatusCode::CONTINUE, Some(upload)) => upload.release(),
                    (StatusCode::EARLY_HINTS, _) => told.add(response.headers()),
                    _ => {}
                }
            });
        }
        interim
    }
}
