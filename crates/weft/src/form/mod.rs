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
//! by default, see [`FormSettings`]. The error of an invalid form converts to a response: 400 if the
//! form is malformed, 413 if it is too large, 415 if it has another media type.
//!
//! These functions take a [`Request`](crate::Request), or a head and a body separately: in a
//! `match` on the head's segments, `(head.clone(), body)`.

mod disposition; // Content-Disposition of a part (pure)
mod multipart; // Multipart and its parts, read within limits
mod query; // queries of targets, decoded
mod parts; // bytes → parts (pure)
mod temp_file; // TempFile
mod urlencoded; // Fields, and forms deserialized with serde

use std::path::PathBuf;

use serde::de::DeserializeOwned;

pub use multipart::{Multipart, Part};
pub use temp_file::TempFile;
pub use urlencoded::Fields;

use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
use crate::message::request_head::RequestHead;

/// Limits of a form. Exceeding one of them becomes a 413 response; `MAX` disables a limit.
///
/// ```
/// use weft::{Request, Response, form};
///
/// async fn upload(request: Request) -> weft::Result<Response> {
///     let settings = form::FormSettings {
///         max_bytes: Some(1 << 30),
///         max_file_bytes: 1 << 30,
///         max_files: 1,
///         ..Default::default()
///     };
///     let mut form = settings.multipart(request)?;
///     // …
/// #   assert!(form.next().await.is_err());
///     Ok(Response::text("Thank you.\n"))
/// }
/// # assert_eq!(weft::testing::get(upload, "/").status, 415);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormSettings {
    /// Maximum size of the whole form, in bytes as sent.
    ///
    /// Default `None`: the limit of the server applies, [`max_body_bytes`](crate::Settings), 16
    /// MiB. `Some` replaces that limit.
    pub max_bytes: Option<u64>,

    /// Maximum number of fields that are not files, also in a [query](FormSettings::query).
    ///
    /// Default 1,000, as in PHP and Django.
    pub max_fields: usize,

    /// Maximum size of a field that is not a file, in bytes. In a urlencoded form, the size as
    /// sent, including the name.
    ///
    /// Default 256 KiB: a hundred pages of text.
    pub max_field_bytes: usize,

    /// Maximum total size of all fields that are not files, in bytes; in a urlencoded form, the
    /// size of the whole form. These fields are likely to be kept in memory.
    ///
    /// Default 1 MiB.
    pub max_all_fields_bytes: usize,

    /// Maximum number of files.
    ///
    /// Default 100.
    pub max_files: usize,

    /// Maximum size of a file, in bytes.
    ///
    /// Default 16 MiB.
    pub max_file_bytes: u64,

    /// Maximum size of the head of one part, in bytes.
    ///
    /// Default 4,096: enough for several fields and a long name. At most 65,000.
    pub max_part_head_bytes: usize,

    /// Maximum number of header fields in the head of one part.
    ///
    /// Default 32: browsers send two.
    pub max_part_fields: usize,

    /// Directory for [temporary files](Part::into_file).
    ///
    /// Default `None`: the directory of the system (`TMPDIR`, otherwise `/tmp`), which is in memory
    /// on some systems.
    pub temp_dir: Option<PathBuf>,
}

impl Default for FormSettings {
    fn default() -> FormSettings {
        FormSettings {
            max_bytes: None,
            max_fields: 1_000,
            max_field_bytes: 256 << 10,
            max_all_fields_bytes: 1 << 20,
            max_files: 100,
            max_file_bytes: 16 << 20,
            max_part_head_bytes: 4_096,
            max_part_fields: 32,
            temp_dir: None,
        }
    }
}

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

/// Checks that the request has the media type `expected`, and returns its parameters.
fn expect_type<'a>(head: &'a RequestHead, expected: &str) -> Result<&'a [u8]> {
    let found = head.headers().get_bytes("content-type").unwrap_or_default();
    let end = found.iter().position(|&b| b == b';').unwrap_or(found.len());
    let (found, parameters) = found.split_at(end);
    if found.trim_ascii().eq_ignore_ascii_case(expected.as_bytes()) {
        return Ok(parameters);
    }
    let found = match found.trim_ascii() {
        b"" => "nothing",
        found => &String::from_utf8_lossy(found),
    };
    let reason = format!("expected a form as {expected}, and Content-Type says {found}");
    Err(Error::new(ErrorKind::MediaTypeUnsupported, reason))
}

fn too_large(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::BodyTooLarge, reason.into())
}
