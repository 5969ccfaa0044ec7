//! A response that the configuration contains.

use std::sync::Arc;

use bytes::Bytes;
use weft::{Body, HeaderValue, Request, Response, StatusCode, header};

use crate::template::Template;

/// Responds with a fixed status and text. An error without a text has an error page.
#[derive(Clone)]
pub(crate) struct Respond {
    text: Arc<Template>,
    /// The text of a worker, if it is the same for all requests: its responses share it.
    literal: Option<Bytes>,
    status: StatusCode,
    /// `None`: plain text.
    content_type: Option<HeaderValue>,
}

impl Respond {
    pub(crate) fn new(
        text: &Template,
        status: StatusCode,
        content_type: Option<HeaderValue>,
    ) -> Respond {
        Respond { text: Arc::new(text.clone()), literal: None, status, content_type }
    }

    /// Returns the responder of a worker, which shares no reference count with those of others.
    pub(crate) fn for_worker(&self) -> Respond {
        let literal = self.text.as_literal().filter(|text| !text.is_empty());
        let literal = literal.map(|text| Bytes::copy_from_slice(text.as_bytes()));
        Respond { literal, ..self.clone() }
    }

    pub(crate) fn response(&self, request: &Request) -> Response {
        let body = match (&self.literal, self.text.as_literal()) {
            (Some(literal), _) => Body::from(literal.clone()),
            (None, Some("")) if self.status.as_u16() >= 400 => return self.status.into(),
            (None, Some("")) => return Response::new(self.status),
            (None, Some(text)) => text.to_owned().into(),
            (None, None) => match self.text.expand(request) {
                Ok(text) => text.into(),
                Err(error) => return error.into(),
            },
        };
        let mut response = Response::text(body).with_status(self.status);
        if let Some(content_type) = &self.content_type {
            response.set_header(header::CONTENT_TYPE, content_type);
        }
        response
    }
}
