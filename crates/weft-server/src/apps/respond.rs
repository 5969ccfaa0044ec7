//! `respond`: a response that the configuration contains.

use std::sync::Arc;

use bytes::Bytes;
use weft::header::{self, HeaderValue};
use weft::{Body, Request, Response, StatusCode};
use weft_config::{Key, SectionKeys, ValueKind, quoted};

use super::form::{OpenContext, PlanContext, RouteApp, RouteForm, section_keys};
use super::response_keys::{
    content_type_key, parse_content_type, show_content_type, show_status, status_code, status_key,
};
use super::{ResponseFuture, respond_now};
use crate::options::RouteOptions;
use crate::template::Template;

/// Status that closes the connection without a response, as in nginx.
const CLOSE: u16 = 444;

/// Values of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RespondForm {
    /// Template of the text.
    text: String,
    /// `None`: 200.
    status: Option<u16>,
    /// `None`: plain text.
    content_type: Option<HeaderValue>,
}

static KEYS: [Key<RespondForm>; 3] = [
    Key {
        name: "respond",
        help: "text of the response; an empty text with `status = 444` closes the connection without a \
               response",
        kind: ValueKind::Text(|form, text| {
            form.text = text.value;
            Ok(())
        }),
        show: |form| quoted(&form.text),
        ..Key::FILE_ONLY
    },
    status_key(|form, number| form.status = Some(number as u16), |form| show_status(form.status)),
    content_type_key(
        |form, text| {
            form.content_type = Some(parse_content_type(&text)?);
            Ok(())
        },
        |form| show_content_type(form.content_type.as_ref()),
    ),
];

impl RespondForm {
    /// Returns the form of an error response without a text.
    pub(crate) fn error(status: StatusCode) -> RespondForm {
        RespondForm { status: Some(status.as_u16()), ..RespondForm::default() }
    }
}

impl RouteForm for RespondForm {
    type App = Respond;

    fn name() -> &'static str {
        KEYS[0].name
    }

    fn keys() -> SectionKeys<RespondForm> {
        section_keys(&KEYS)
    }

    fn plan(&mut self, _: &mut RouteOptions, context: &PlanContext<'_>) -> Result<(), String> {
        let status = *self.status.get_or_insert(200);
        if matches!(status, 204 | 205 | 304 | CLOSE) && !self.text.is_empty() {
            return Err(format!("a response of status {status} has no text"));
        }
        let text = context.patterns.parse_template(&self.text)?;
        match self.content_type.is_some() && text.as_literal().is_none() {
            true => Err("a text with placeholders has no `content_type` but text/plain: their \
                         values are not escaped"
                .to_owned()),
            false => Ok(()),
        }
    }

    fn open(&self, _: &OpenContext<'_>) -> Result<Respond, String> {
        let text = Template::parse(&self.text)?;
        Ok(Respond::new(&text, status_code(self.status), self.content_type.clone()))
    }

    fn template(&self) -> Option<&str> {
        Some(&self.text)
    }
}

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

    fn response(&self, request: &Request) -> Response {
        let body = match &self.text {
            Text::Literal(literal) => Body::from(literal.clone()),
            Text::None if self.status.as_u16() == CLOSE => return Response::close(),
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

impl RouteApp for Respond {
    /// Shares no reference count with the applications of other workers.
    fn for_worker(&self, _: bool) -> Respond {
        let text = match &self.text {
            Text::Literal(literal) => Text::literal(literal),
            shared => shared.clone(),
        };
        Respond { text, ..self.clone() }
    }

    fn call(&self, request: Request) -> ResponseFuture {
        respond_now(self.response(&request))
    }
}

impl Text {
    fn literal(text: &[u8]) -> Text {
        Text::Literal(Bytes::copy_from_slice(text))
    }
}
