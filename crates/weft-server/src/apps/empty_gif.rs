//! `empty_gif`: a transparent image of one pixel, as of nginx's module with this name. Pages and
//! mails load it, so that the access log has their views.

use bytes::Bytes;
use weft::{Method, Request, Response, StatusCode, header};
use weft_config::{Key, SectionKeys, ValueKind};

use super::form::{OpenContext, PlanContext, RouteApp, RouteForm, section_keys};
use super::{ResponseFuture, respond_now};
use crate::options::RouteOptions;

/// Values of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct EmptyGifForm {
    is_enabled: bool,
}

static KEYS: [Key<EmptyGifForm>; 1] = [Key {
    name: "empty_gif",
    help: "true: respond with a transparent image of one pixel",
    kind: ValueKind::Bool(|form, is_enabled| form.is_enabled = is_enabled),
    show: |form| form.is_enabled.to_string(),
    ..Key::FILE_ONLY
}];

impl RouteForm for EmptyGifForm {
    type App = EmptyGif;

    fn name() -> &'static str {
        KEYS[0].name
    }

    fn keys() -> SectionKeys<EmptyGifForm> {
        section_keys(&KEYS)
    }

    fn plan(&mut self, _: &mut RouteOptions, _: &PlanContext<'_>) -> Result<(), String> {
        match self.is_enabled {
            true => Ok(()),
            false => Err("`empty_gif` is true, or the route has another form".to_owned()),
        }
    }

    fn open(&self, _: &OpenContext<'_>) -> Result<EmptyGif, String> {
        Ok(EmptyGif)
    }
}

/// Responds with the image.
pub(crate) struct EmptyGif;

/// A GIF89a with one transparent pixel.
static IMAGE: [u8; 43] = *b"GIF89a\x01\0\x01\0\x80\x01\0\0\0\0\xff\xff\xff\
    \x21\xf9\x04\x01\0\0\x01\0\x2c\0\0\0\0\x01\0\x01\0\0\x02\x02\x4c\x01\0\x3b";

impl RouteApp for EmptyGif {
    fn for_worker(&self, _: bool) -> EmptyGif {
        EmptyGif
    }

    fn call(&self, request: Request) -> ResponseFuture {
        respond_now(match *request.method() {
            Method::GET | Method::HEAD => Response::from_body(Bytes::from_static(&IMAGE))
                .with_header(header::CONTENT_TYPE, "image/gif"),
            _ => Response::from(StatusCode::METHOD_NOT_ALLOWED)
                .with_header(header::ALLOW, "GET, HEAD"),
        })
    }
}

#[cfg(test)]
mod tests {
    use weft::testing::{call, request};

    use super::*;

    #[test]
    fn responds_with_the_image() {
        let respond = |method: &str| {
            let request = request(format!("{method} /pixel HTTP/1.1\r\nHost: a\r\n\r\n"));
            call(|request: Request| EmptyGif.call(request), request)
        };
        let response = respond("GET");
        assert_eq!(response.status, StatusCode::OK);
        assert_eq!(response.body, IMAGE.as_slice());
        assert_eq!(respond("POST").status, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn shows_the_key_as_in_a_file() {
        let form = EmptyGifForm { is_enabled: true };
        assert_eq!(weft_config::print_entries(&KEYS, &form, &form), ["empty_gif = true"]);
    }
}
