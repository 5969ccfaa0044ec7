//! What browsers send with POST: `application/x-www-form-urlencoded` (WHATWG URL §5) and
//! `multipart/form-data` (RFC 7578).
//!
//! A form without files is read as a whole, as fields or as a value that serde can make:
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
//! A form with files is read part by part, as it comes; see [`Multipart`]. Everything has a
//! limit by default, see [`Settings`]. A form that is not as it should be is answered by what
//! its error becomes: 400 if it cannot be understood, 413 if it is too large, 415 if it is
//! something else.
//!
//! These functions take a [`Request`](crate::Request), or a head and a body by their own: in a
//! `match` on the head's segments, `(head.clone(), body)`.

mod disposition; // what a part's Content-Disposition says (pure)
mod multipart; // Multipart and its parts, as they are read, within limits
mod query;
mod parts; // bytes → parts (pure)
mod temp_file; // TempFile
mod urlencoded; // Fields, and forms by serde

use std::path::PathBuf;

use serde::de::DeserializeOwned;

pub use multipart::{Multipart, Part};
pub use temp_file::TempFile;
pub use urlencoded::Fields;

use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
use crate::message::request::Head;

/// The limits of a form. What is over one of them becomes 413; `MAX` turns one off.
///
/// ```
/// use weft::{Request, Response, form};
///
/// async fn upload(request: Request) -> weft::Result<Response> {
///     let settings = form::Settings {
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
pub struct Settings {
    /// The largest form in all, in bytes as it is sent.
    ///
    /// Default `None`: what the server lets in, [`max_body_bytes`](crate::Settings), 16 MiB.
    /// Otherwise this takes the place of that.
    pub max_bytes: Option<u64>,

    /// The most fields that are no files.
    ///
    /// Default 1,000.
    pub max_fields: usize,

    /// The largest field that is no file, in bytes; of an urlencoded form as it is sent, with
    /// its name.
    ///
    /// Default 256 KiB: a hundred pages of text.
    pub max_field_bytes: usize,

    /// What all fields that are no files may have together, in bytes; an urlencoded form as a
    /// whole. They are what is likely to be kept in memory.
    ///
    /// Default 1 MiB.
    pub max_all_fields_bytes: usize,

    /// The most files.
    ///
    /// Default 100.
    pub max_files: usize,

    /// The largest file, in bytes.
    ///
    /// Default 16 MiB.
    pub max_file_bytes: u64,

    /// The largest head of one part, in bytes.
    ///
    /// Default 4,096: some lines, and a long name. At most 65,000.
    pub max_part_head_bytes: usize,

    /// Where [temporary files](Part::into_file) are made.
    ///
    /// Default `None`: where the system puts them (`TMPDIR`, otherwise `/tmp`), which on some
    /// is memory.
    pub folder: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_bytes: None,
            max_fields: 1_000,
            max_field_bytes: 256 << 10,
            max_all_fields_bytes: 1 << 20,
            max_files: 100,
            max_file_bytes: 16 << 20,
            max_part_head_bytes: 4_096,
            folder: None,
        }
    }
}

/// [`Settings::fields`] with the defaults.
///
/// # Errors
/// The same.
pub async fn fields(request: impl Into<(Head, Body)>) -> Result<Fields> {
    Settings::default().fields(request).await
}

/// [`Settings::read`] with the defaults.
///
/// # Errors
/// The same.
pub async fn read<T: DeserializeOwned>(request: impl Into<(Head, Body)>) -> Result<T> {
    Settings::default().read(request).await
}

/// [`Settings::multipart`] with the defaults.
///
/// # Errors
/// The same.
pub fn multipart(request: impl Into<(Head, Body)>) -> Result<Multipart> {
    Settings::default().multipart(request)
}

/// The parameters of a request's media type, which must be this one.
fn expect_type<'a>(head: &'a Head, expected: &str) -> Result<&'a [u8]> {
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
