//! The response with a file that the application names: `Response::file`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::root::is_not_found;
use super::{generated, status_of};
use crate::disk::{self, File};
use crate::error::{Error, Result};
use crate::message::response::Response;
use crate::sys::{self, EntryKind, FileStat, fstat};

impl Response {
    /// Opens the file at this path, and creates a 200 response with it and with the `Content-Type`
    /// of its extension. The engine evaluates preconditions and ranges, as for a
    /// [`Directory`](crate::files::Directory): the client gets 206, 304, 412 or 416 where they
    /// apply. The file is opened on a thread of the blocking pool.
    ///
    /// The path belongs to the application. A part of it that a client chooses may lead out of a
    /// folder by `..`, by a slash or by a link; serve such files by a `Directory`, which also
    /// caches, compresses and limits lookups.
    ///
    /// ```no_run
    /// use weft::{Request, Response};
    ///
    /// async fn report(_: Request) -> weft::Result<Response> {
    ///     let response = Response::file("reports/2026.pdf").await?;
    ///     Ok(response.with_header("content-disposition", "attachment"))
    /// }
    /// # let _ = weft::testing::get(report, "/");
    /// ```
    ///
    /// # Errors
    /// 404 if there is no such file, or if it is not a regular file: a folder, a pipe, a socket or
    /// a device is not read. 403 if the program may not read it. Other errors are 500, and hooks
    /// and logs get them with the path.
    #[cfg_attr(docsrs, doc(cfg(feature = "files")))]
    pub async fn file(path: impl AsRef<Path>) -> Result<Response> {
        let path = path.as_ref();
        let to_open = path.to_owned();
        match disk::blocking(move || open_regular(to_open)).await {
            Ok((file, stat)) if sys::is_generated(&file, &stat) => {
                Ok(Response::from_body(generated::contents(file.into())).with_type_of(path))
            }
            Ok((file, stat)) => {
                Ok(Response::from_file(File::with_stat(file, &stat)).with_type_of(path))
            }
            Err(error) => Err(open_error(path, error)),
        }
    }
}

/// Opens a regular file for reading. Waits for the disk, but not for the writer of a pipe.
fn open_regular(path: PathBuf) -> io::Result<(fs::File, FileStat)> {
    let file = sys::open_for_reading(&path)?;
    let stat = fstat(&file)?;
    match stat.kind {
        EntryKind::File => Ok((file, stat)),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn open_error(path: &Path, error: io::Error) -> Error {
    if is_not_found(&error) || error.kind() == io::ErrorKind::NotFound {
        return http::StatusCode::NOT_FOUND.into();
    }
    match status_of(&error) {
        status if status.is_client_error() => status.into(),
        _ => {
            let text = format!("cannot open {}: {error}", path.display());
            Error::other(io::Error::new(error.kind(), text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::request::Request;
    use crate::testing::{self, TestResponse};

    fn ask(path: &Path, line: &str, fields: &str) -> TestResponse {
        let app = async |_: Request| Response::file(path).await;
        testing::call(app, testing::request(format!("{line}\r\nHost: a\r\n{fields}\r\n")))
    }

    #[test]
    fn applies_ranges_and_conditions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.html");
        fs::write(&path, "0123456789").unwrap();
        let get = "GET / HTTP/1.1";
        let whole = ask(&path, get, "");
        let [etag, date] = ["etag", "last-modified"].map(|it| whole.header(it).unwrap().to_owned());
        assert_eq!(whole.header("content-type"), Some("text/html; charset=utf-8"));
        for (line, fields, status, body, field) in [
            (get, "", 200, "0123456789", ("accept-ranges", Some("bytes"))),
            ("HEAD / HTTP/1.1", "", 200, "", ("content-length", Some("10"))),
            ("HEAD / HTTP/1.1", "Range: bytes=2-4\r\n", 200, "", ("content-length", Some("10"))),
            (get, "Range: bytes=2-4\r\n", 206, "234", ("content-range", Some("bytes 2-4/10"))),
            (get, "Range: bytes=-3\r\n", 206, "789", ("content-length", Some("3"))),
            (get, "Range: bytes=20-\r\n", 416, "", ("content-range", Some("bytes */10"))),
            (get, &format!("If-None-Match: {etag}\r\n"), 304, "", ("content-type", None)),
            (get, &format!("If-Modified-Since: {date}\r\n"), 304, "", ("etag", Some(&*etag))),
            (get, "If-Match: \"other\"\r\n", 412, "", ("x-none", None)),
            ("POST / HTTP/1.1", "Range: bytes=2-4\r\n", 200, "0123456789", ("x-none", None)),
        ] {
            let response = ask(&path, line, fields);
            assert_eq!(response.status.as_u16(), status, "{line} {fields}");
            // The entity tag becomes strong when the file has settled.
            let value = response.header(field.0).map(|value| value.trim_start_matches("W/"));
            let expected = field.1.map(|value| value.trim_start_matches("W/"));
            assert_eq!(value, expected, "{line} {fields}");
            if status < 400 {
                response.assert_text(body);
            }
        }
    }

    #[test]
    fn opens_only_regular_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        std::os::unix::fs::symlink("pipe", path("link-to-pipe")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(made.success());
        for (name, status) in [
            ("file", 200),
            ("link", 200),
            ("missing", 404),
            ("file/", 404),
            ("file/below", 404),
            (".", 404),
            ("pipe", 404),
            ("link-to-pipe", 404),
            ("socket", 404),
            ("nul\0byte", 404),
            (&"x".repeat(300), 404),
        ] {
            let response = ask(&path(name), "GET / HTTP/1.1", "");
            assert_eq!(response.status.as_u16(), status, "{name}");
            assert_eq!(response.errors.len(), 0, "{name}: {:?}", response.errors);
        }
        assert_eq!(ask(Path::new("/dev/null"), "GET / HTTP/1.1", "").status, 404);
        assert_eq!(ask(Path::new(""), "GET / HTTP/1.1", "").status, 404);
    }

    /// Their length is not known when they are opened.
    #[test]
    #[cfg(all(target_os = "linux", not(weft_portable)))]
    fn reads_generated_files() {
        let response = ask(Path::new("/proc/self/status"), "GET / HTTP/1.1", "");
        assert_eq!((response.status.as_u16(), response.header("etag")), (200, None));
        assert!(response.body.starts_with(b"Name:"), "{}", response.body.escape_ascii());
    }
}
