//! Uploads in temporary files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tokio::runtime::Handle;

use crate::disk::blocking;
use crate::error::{Error, ErrorKind, Result};

/// Bytes buffered before a write by the thread pool: a round trip to the pool costs as much as
/// writing several kilobytes.
const WRITE_BUFFER_BYTES: usize = 256 << 10;

/// A temporary file, readable only by the user of the process. It is deleted when this value is
/// dropped.
#[derive(Debug)]
pub struct TempFile {
    owned: OwnedFile,
    length: u64,
}

impl TempFile {
    /// Size of the file in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.owned.get().path()
    }

    /// The open file; its cursor is at the end.
    pub fn file(&self) -> &fs::File {
        self.owned.get().as_file()
    }

    /// Keeps the file and renames it to `path`. Both paths must be on the same file system; see
    /// [`FormSettings::temp_dir`](super::FormSettings::temp_dir).
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if the path already exists, or the file cannot be created there. Then
    /// the temporary file is deleted.
    pub async fn persist(self, path: impl Into<PathBuf>) -> Result<fs::File> {
        let (file, path) = (self.into_inner(), path.into());
        blocking(move || Ok(file.persist_noclobber(path)?)).await.map_err(storage_error)
    }

    /// Converts to the type of the crate `tempfile`.
    pub fn into_inner(mut self) -> NamedTempFile {
        self.owned.0.take().expect("the file exists until this value is dropped")
    }
}

/// Deletes the file on the thread pool, because deleting a large file is slow.
#[derive(Debug)]
struct OwnedFile(Option<NamedTempFile>);

impl OwnedFile {
    fn get(&self) -> &NamedTempFile {
        self.0.as_ref().expect("the file exists until this value is dropped")
    }
}

impl Drop for OwnedFile {
    fn drop(&mut self) {
        // Outside a runtime the file is deleted at once.
        if let (Some(file), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

/// Writes a temporary file.
pub(super) struct Writer {
    owned: OwnedFile,
    length: u64,
    /// Bytes to be written. They are copied, because a chunk of one byte may keep a large buffer
    /// alive.
    buffer: Vec<u8>,
}

impl Writer {
    pub(super) async fn new(folder: Option<PathBuf>) -> Result<Writer> {
        let folder = folder.unwrap_or_else(std::env::temp_dir);
        let file = blocking(|| NamedTempFile::new_in(folder)).await.map_err(storage_error)?;
        Ok(Writer { owned: OwnedFile(Some(file)), length: 0, buffer: Vec::new() })
    }

    pub(super) async fn write(&mut self, chunk: &[u8]) -> Result<()> {
        self.length += chunk.len() as u64;
        self.buffer.extend_from_slice(chunk);
        if self.buffer.len() >= WRITE_BUFFER_BYTES { self.flush().await } else { Ok(()) }
    }

    pub(super) async fn finish(mut self) -> Result<TempFile> {
        self.flush().await?;
        Ok(TempFile { owned: self.owned, length: self.length })
    }

    async fn flush(&mut self) -> Result<()> {
        let mut file = self.owned.0.take().expect("there is no write after a failed one");
        let mut buffer = std::mem::take(&mut self.buffer);
        let written = blocking(move || {
            file.write_all(&buffer)?;
            buffer.clear();
            Ok((file, buffer))
        });
        let (file, buffer) = written.await.map_err(storage_error)?;
        (self.owned.0, self.buffer) = (Some(file), buffer);
        Ok(())
    }
}

fn storage_error(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot store the upload in a temporary file").with_source(error)
}
