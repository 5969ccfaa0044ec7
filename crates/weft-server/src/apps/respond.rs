//! A fixed response to every request.

use std::sync::Arc;

use weft::{Response, StatusCode};

/// Responds with a fixed status and text.
#[derive(Clone)]
pub(crate) struct Respond {
    text: Arc<str>,
    status: StatusCode,
}

impl Respond {
    pub(crate) fn new(text: &str, status: StatusCode) -> Respond {
        Respond { text: text.into(), status }
    }

    pub(crate) fn response(&self) -> Response {
        match &*self.text {
            "" => Response::new(self.status),
            text => Response::text(text.to_owned()).with_status(self.status),
        }
    }
}
