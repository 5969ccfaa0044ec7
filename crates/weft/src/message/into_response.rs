//! The trait `IntoResponse`: values that handlers and middleware may return.

use std::borrow::Cow;
use std::convert::Infallible;

use bytes::Bytes;
use http::StatusCode;

use crate::error::{Error, Result};
use crate::message::body::Body;
use crate::message::fields::{BYTES, Fields};
use crate::message::payload::Payload;
use crate::message::response::Response;

/// A value that a handler or middleware function may return.
///
/// | value | response |
/// | --- | --- |
/// | [`Response`] | itself |
/// | `&'static str`, [`String`], `Cow<'static, str>` | 200 with `text/plain; charset=utf-8` |
/// | [`Bytes`], `Vec<u8>`, `&'static [u8]` | 200 with `application/octet-stream` |
/// | `()` | 200 without content |
/// | [`StatusCode`] | the status with a line of text or, for errors, a page or an object |
/// | `(StatusCode, T)` | the response of `T` with this status |
/// | `Option<T>` | the response of `T`, or 404 |
/// | `Result<T, E>` | the response of `T` or of `E` |
/// | [`Error`] | the status of the error; hooks get 5xx |
/// | `Box<dyn Error>`, `Box<dyn Error + Send + Sync>` | 500, or the status of an [`Error`] in it |
/// | `anyhow::Error` (feature `anyhow`) | as for the boxed error |
///
/// ```
/// use weft::{Request, StatusCode, testing};
///
/// async fn created(_: Request) -> (StatusCode, &'static str) { (StatusCode::CREATED, "Done.\n") }
///
/// async fn found(request: Request) -> Option<String> {
///     let [name] = &*request.segments() else { return None };
///     Some(format!("Hello, {name}!\n"))
/// }
///
/// assert_eq!(testing::get(created, "/").status, 201);
/// testing::get(found, "/Ada").assert_text("Hello, Ada!\n");
/// testing::get(found, "/").assert_text("404 Not Found\n");
/// ```
///
/// # Errors of an application
///
/// Most handlers return [`weft::Result`](crate::Result):
///
/// - [`Error::status`] and a [`StatusCode`] in place of an error choose the response,
/// - [`Error::other`] makes 500 of the error of another library: `.map_err(Error::other)?`.
///
/// If `?` should convert all errors, return `Result<T, Box<dyn Error + Send + Sync>>` (without
/// `Send + Sync`, hooks get the text of the error in place of the error), or
/// `anyhow::Result<T>` with the feature `anyhow`. An [`Error`] in them keeps its status.
///
/// An error type of the application implements this trait:
///
/// ```
/// use weft::{Error, IntoResponse, Request, Response, StatusCode, testing};
///
/// enum Problem {
///     NoUser(String),
///     Database(std::io::Error),
/// }
///
/// impl IntoResponse for Problem {
///     fn into_response(self) -> Response {
///         match self {
///             Problem::NoUser(name) => {
///                 Error::status(StatusCode::NOT_FOUND, format!("no user {name}")).into_response()
///             }
///             Problem::Database(error) => Error::other(error).into_response(),
///         }
///     }
/// }
///
/// async fn user(request: Request) -> Result<String, Problem> {
///     if request.path() == "/broken" {
///         return Err(Problem::Database(std::io::Error::other("no connection")));
///     }
///     Err(Problem::NoUser("eve".into()))
/// }
/// testing::get(user, "/").assert_text("404 Not Found: no user eve\n");
/// testing::get(user, "/broken").assert_text("500 Internal Server Error\n");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a response",
    label = "a handler cannot return this",
    note = "handlers and middleware return `weft::Response`, text, bytes, `StatusCode`, \
            `(StatusCode, T)`, or `Option<T>` or `Result<T, E>` of them",
    note = "for an error of another library, return `weft::Result` and write \
            `.map_err(weft::Error::other)?`; for a type of your own, implement \
            `weft::IntoResponse`; for a value as JSON, write `Response::json(value)`"
)]
pub trait IntoResponse {
    /// Converts the value.
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    #[inline]
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for () {
    fn into_response(self) -> Response {
        Response::new(StatusCode::OK)
    }
}

impl IntoResponse for Infallible {
    fn into_response(self) -> Response {
        match self {}
    }
}

/// Implements the trait by a function from the value to the response.
macro_rules! into_response {
    ($($value:ty => $convert:expr,)*) => {
        $(impl IntoResponse for $value {
            #[inline]
            fn into_response(self) -> Response {
                $convert(self)
            }
        })*
    };
}

into_response! {
    &'static str => Response::text,
    String => Response::text,
    Cow<'static, str> => cow,
    Bytes => bytes,
    Vec<u8> => bytes,
    &'static [u8] => static_bytes,
    StatusCode => Response::from,
    Error => Response::from,
    Box<dyn std::error::Error + Send + Sync> => boxed_error,
    Box<dyn std::error::Error> => local_error,
}

#[cfg(feature = "anyhow")]
into_response! { anyhow::Error => anyhow_error, }

impl<T: IntoResponse> IntoResponse for (StatusCode, T) {
    #[inline]
    fn into_response(self) -> Response {
        self.1.into_response().with_status(self.0)
    }
}

impl<T: IntoResponse> IntoResponse for Option<T> {
    #[inline]
    fn into_response(self) -> Response {
        self.map_or_else(Response::not_found, T::into_response)
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    #[inline]
    fn into_response(self) -> Response {
        match self {
            Ok(value) => value.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

/// Creates a response with a type that browsers do not display, because they guess the type of
/// bytes without one.
#[inline]
fn bytes(bytes: impl Into<Body>) -> Response {
    Response::success(Fields::Static(&BYTES), Payload::Body(bytes.into()))
}

fn static_bytes(content: &'static [u8]) -> Response {
    bytes(Bytes::from_static(content))
}

fn cow(text: Cow<'static, str>) -> Response {
    match text {
        Cow::Borrowed(text) => Response::text(text),
        Cow::Owned(text) => Response::text(text),
    }
}

fn boxed_error(error: Box<dyn std::error::Error + Send + Sync>) -> Response {
    Error::other(error).into()
}

/// Converts an error that cannot be sent to another thread, as which hooks may keep it, to its text
/// and the texts of its sources.
fn local_error(error: Box<dyn std::error::Error>) -> Response {
    let error = match error.downcast::<Error>() {
        Ok(error) => return (*error).into(),
        Err(error) => error,
    };
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    Error::other(text).into()
}

#[cfg(feature = "anyhow")]
fn anyhow_error(error: anyhow::Error) -> Response {
    Error::from(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn converts_values_to_responses() {
        let boxed = |text: &str| Box::<dyn std::error::Error + Send + Sync>::from(text.to_owned());
        let hidden: Error = Error::new(ErrorKind::Io, "disk");
        let teapot = StatusCode::IM_A_TEAPOT;
        let text = Some("text/plain; charset=utf-8");
        let octets = Some("application/octet-stream");
        for (response, status, content_type, length) in [
            ("abc".into_response(), 200, text, 3),
            (String::from("abc").into_response(), 200, text, 3),
            (Cow::Borrowed("abc").into_response(), 200, text, 3),
            (vec![1_u8, 2].into_response(), 200, octets, 2),
            (Bytes::from_static(b"12").into_response(), 200, octets, 2),
            ((&b"12"[..]).into_response(), 200, octets, 2),
            (().into_response(), 200, None, 0),
            (teapot.into_response(), 418, text, 17),
            ((teapot, "abc").into_response(), 418, text, 3),
            ((teapot, ()).into_response(), 418, None, 0),
            (Some("abc").into_response(), 200, text, 3),
            (None::<&str>.into_response(), 404, text, 14),
            (Ok::<_, StatusCode>("abc").into_response(), 200, text, 3),
            (Err::<(), _>((teapot, "abc")).into_response(), 418, text, 3),
            (Err::<Option<()>, _>(hidden).into_response(), 500, text, 26),
            (boxed("secret").into_response(), 500, text, 26),
            (Error::status(teapot, "tea").into_response(), 418, text, 22),
            (Error::status(StatusCode::BAD_GATEWAY, "secret").into_response(), 502, text, 16),
            (Error::status(StatusCode::OK, "secret").into_response(), 500, text, 26),
            (boxed_error(Error::status(teapot, "tea").into()), 418, text, 22),
        ] {
            assert_eq!(response.status().as_u16(), status);
            let found = response.header("content-type").map(|value| value.to_str().unwrap());
            assert_eq!((found, response.length()), (content_type, Some(length)), "{response:?}");
            assert_eq!(response.error().is_some(), status >= 500, "{response:?}");
        }
    }

    #[test]
    fn boxed_errors_have_their_status_and_their_sources() {
        type LocalError = Box<dyn std::error::Error>;

        #[derive(Debug)]
        struct Outer(std::io::Error);
        impl std::fmt::Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("outer")
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let not_found = Error::status(StatusCode::NOT_FOUND, "no user");
        let list: LocalError = "z".parse::<u8>().unwrap_err().into();
        let logged = |response: &Response| response.error().map(Error::to_string);
        let response = LocalError::from(not_found).into_response();
        assert_eq!((response.status().as_u16(), logged(&response)), (404, None));
        let text = "the application failed: invalid digit found in string";
        let outer: LocalError = Outer(std::io::Error::other("disk")).into();
        for (error, text) in [(list, text), (outer, "the application failed: outer: disk")] {
            let response = error.into_response();
            assert_eq!(response.status().as_u16(), 500);
            assert_eq!(logged(&response).as_deref(), Some(text));
        }
    }

    #[test]
    fn text_is_not_copied() {
        let text = String::from("some text");
        let address = text.as_ptr();
        let body = text.into_response().take_body().take_bytes();
        assert_eq!(body.as_ptr(), address);
    }

    #[cfg(feature = "anyhow")]
    #[test]
    fn anyhow_errors_keep_the_status_of_an_error_in_them() {
        use anyhow::Context;

        let fails = |error: Error| Err::<(), _>(error).context("while testing");
        let conflict = fails(Error::status(StatusCode::CONFLICT, "taken"));
        assert_eq!(conflict.into_response().status(), StatusCode::CONFLICT);
        let response = anyhow::anyhow!("secret").context("outer").into_response();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let logged = response.error().unwrap().to_string();
        assert_eq!(logged, "the application failed: outer: secret");
    }
}
