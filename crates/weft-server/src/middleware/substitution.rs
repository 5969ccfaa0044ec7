//! Substitution of texts in the bodies of a route.

use std::sync::Arc;

use bytes::Bytes;
use weft::middleware::{Replacement, Substitute};
use weft::{Application, Method, Middleware, Request, Response, StatusCode, header};
use weft_upstream::RequestFields;

use crate::config::RouteOptions;
use crate::template::Template;

/// Replaces texts in the bodies of responses, which upstreams and scripts send uncoded. If they send a
/// range of such a body, they are asked again for the whole.
#[derive(Clone)]
pub(crate) struct Substitution(Substitute);

impl Substitution {
    /// Creates the middleware; `None` without texts.
    ///
    /// # Errors
    /// If there are too many texts.
    pub(crate) fn new(options: &RouteOptions) -> Result<Option<Substitution>, String> {
        let Some(list) = options.sub_filter.as_ref().filter(|list| !list.is_empty()) else {
            return Ok(None);
        };
        let pairs = list.iter().map(|it| (&it.text, replacement(&it.replacement)));
        let mut substitute = Substitute::new(pairs).map_err(|error| error.reason().to_owned())?;
        if let Some(types) = &options.sub_filter_types {
            let pattern = |it: &String| if it == "*" { "*/*".to_owned() } else { it.clone() };
            substitute = substitute.media_types(types.iter().map(pattern));
        }
        let is_once = options.sub_filter_once.unwrap_or(true);
        Ok(Some(Substitution(if is_once { substitute } else { substitute.everywhere() })))
    }
}

fn replacement(template: &Template) -> Replacement {
    match template.as_literal() {
        Some(text) => text.into(),
        None => {
            let template = template.clone();
            Replacement::ByRequest(Arc::new(move |request| {
                // Values that are too long are those of an attack; the text is removed.
                Bytes::from(template.expand_html(request).unwrap_or_default())
            }))
        }
    }
}

impl Middleware for Substitution {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        RequestFields::remove(&mut request, header::ACCEPT_ENCODING);
        let has_range = request.headers().get_bytes(header::RANGE.as_str()).is_some();
        // Upstreams ignore `Range` for other methods (RFC 9110 §14.2).
        let whole =
            (has_range && *request.method() == Method::GET).then(|| without_range(&request));
        let response = self.0.call(request, next).await;
        match whole {
            // Parts of the original would not fit together with parts of the changed body. Other
            // media, such as videos, keep their ranges.
            Some(whole) if is_part(&response) && self.0.has_media_type_of(&response) => {
                drop(response);
                self.0.call(whole, next).await
            }
            _ => response,
        }
    }
}

fn without_range(request: &Request) -> Request {
    let mut whole = request.without_body();
    // Route and changed fields of the request.
    *whole.extensions_mut() = request.extensions().clone();
    for name in [header::RANGE, header::IF_RANGE] {
        RequestFields::remove(&mut whole, name);
    }
    whole
}

fn is_part(response: &Response) -> bool {
    response.status() == StatusCode::PARTIAL_CONTENT
}
