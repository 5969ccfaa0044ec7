//! A response that the configuration contains.

use std::sync::Arc;

use weft::{HeaderValue, Request, Response, StatusCode, header};

use crate::template::Template;

/// Responds with a fixed status and text. An error without a text has an error page.
#[derive(Clone)]
pub(crate) struct Respond {
    text: Arc<Template>,
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
        Respond { text: Arc::new(text.clone()), status, content_type }
    }

    pub(crate) fn response(&self, request: &Request) -> Response {
        let text = match self.text.as_literal() {
            Some("") if self.status.as_u16() >= 400 => return self.status.into(),
            Some("") => return Response::new(self.status),
            Some(text) => text.to_owned(),
            None => match self.text.expand(request) {
                Ok(text) => text,
                Err(error) => return error.into(),
            },
        };
        let mut response = Response::text(text).with_status(self.status);
        if let Some(content_type) = &self.content_type {
            response.set_header(header::CONTENT_TYPE, content_type);
        }
        response
    }
}
