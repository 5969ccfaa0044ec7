//! HTML forms sent with POST: `application/x-www-form-urlencoded` (WHATWG URL §5) and
//! `multipart/form-data` (RFC 7578).
//!
//! A form without files is read as a whole, as a list of fields or as a value deserialized with
//! serde:
//!
//! ```
//! use weft::{Request, Response, form};
//!
//! #[derive(serde::Deserialize)]
//! struct Greeting {
//!     name: String,
//!     times: Option<usize>,
//! }
//!
//! async fn greet(request: Request) -> weft::Result<Response> {
//!     let Greeting { name, times } = form::read(request).await?;
//!     Ok(Response::text(format!("Hello, {name}!\n").repeat(times.unwrap_or(1).min(10))))
//! }
//!
//! let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 24\r\n\
//!     Content-Type: application/x-www-form-urlencoded\r\n\r\nname=d%C3%ADas+2&times=1";
//! weft::testing::call(greet, weft::testing::request(request)).assert_text("Hello, días 2!\n");
//! ```
//!
//! A form with files is read part by part, as a stream; see [`Multipart`]. Everything has a limit
//! by default, see [`FormSettings`]. The error of an invalid form converts to a response: 400 if
//! the form is malformed, 413 if it is too large, 415 if it has another media type.
//!
//! These functions take a [`Request`](crate::Request), or a head and a body separately: in a
//! `match` on the head's segments, `(head.clone(), body)`.

mod disposition; // Content-Disposition of a part (pure)
mod multipart; // Multipart and its parts, read within limits
mod query; // queries of targets, decoded
mod parts; // bytes → parts (pure)
mod rejection; // reasons to reject a form
mod settings; // FormSettings
mod temp_file; // TempFile
mod urlencoded; // Fields, and forms deserialized with serde

use serde::de::DeserializeOwned;

pub use multipart::{Multipart, Part};
pub use settings::FormSettings;
pub use temp_file::TempFile;
pub use urlencoded::Fields;

use crate::error::Result;
use crate::message::body::Body;
use crate::message::request_head::RequestHead;

/// Calls [`FormSettings::fields`] with the default settings.
///
/// # Errors
/// The errors of [`FormSettings::fields`].
pub async fn fields(request: impl Into<(RequestHead, Body)>) -> Result<Fields> {
    FormSettings::default().fields(request).await
}

/// Calls [`FormSettings::read`] with the default settings.
///
/// # Errors
/// The errors of [`FormSettings::read`].
pub async fn read<T: DeserializeOwned>(request: impl Into<(RequestHead, Body)>) -> Result<T> {
    FormSettings::default().read(request).await
}

/// Calls [`FormSettings::multipart`] with the default settings.
///
/// # Errors
/// The errors of [`FormSettings::multipart`].
pub fn multipart(request: impl Into<(RequestHead, Body)>) -> Result<Multipart> {
    FormSettings::default().multipart(request)
}
