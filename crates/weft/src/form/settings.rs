//! The limits of a form.

use std::path::PathBuf;

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

    /// Directory for [temporary files](crate::form::Part::into_file).
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
