//! A response that the configuration contains.

use std::sync::Arc;

use bytes::Bytes;
use weft::{Body, HeaderValue, Request, Response, StatusCode, header};

use crate::template::Template;

/// Responds with a fixed status and text. An error without a text has an error page.
#[derive(Clone)]
pub(crate) struct Respond {
    text: Text,
    status: StatusCode,
    /// `None`: plain text.
    content_type: Option<HeaderValue>,
}

#[derive(Clone)]
enum Text {
    None,
    /// The same for all requests, whose responses share it.
    Literal(Bytes),
    Template(Arc<Template>),
}

impl Respond {
    pub(crate) fn new(
        text: &Template,
        status: StatusCode,
        content_type: Option<HeaderValue>,
    ) -> Respond {
        let text = match text.as_literal() {
            Some("") => Text::None,
            Some(literal) => Text::literal(literal.as_bytes()),
            None => Text::Template(Arc::new(text.clone())),
        };
        Respond { text, status, content_type }
    }

    /// Returns the responder of a worker, which shares no reference count with those of others.
    pub(crate) fn for_worker(&self) -> Respond {
        let text = match &self.text {
            Text::Literal(literal) => Text::literal(literal),
            shared => shared.clone(),
        };
        Respond { text, ..self.clone() }
    }

    pub(crate) fn response(&self, request: &Request) -> Response {
        let body = match &self.text {
            Text::Literal(literal) => Body::from(literal.clone()),
            Text::None if self.status.as_u16() >= 400 => return self.status.into(),
            Text::None => return Response::new(self.status),
            Text::Template(template) => match template.expand(request) {
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

impl Text {
    fn literal(text: &[u8]) -> Text {
        Text::Literal(Bytes::copy_from_slice(text))
    }
}
