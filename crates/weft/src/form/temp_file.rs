//! An upload in a temporary file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tokio::runtime::Handle;

use crate::disk::blocking;
use crate::error::{Error, ErrorKind, Result};

/// How much is gathered before the pool writes it: a trip there costs as much as writing some
/// kilobytes.
const PIECE_BYTES: usize = 256 << 10;

/// A temporary file, readable by this user alone. It is deleted when this is dropped.
#[derive(Debug)]
pub struct TempFile {
    owned: Owned,
    length: u64,
}

impl TempFile {
    /// How many bytes it has.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.owned.get().path()
    }

    /// The open file; its cursor stands at the end.
    pub fn file(&self) -> &fs::File {
        self.owned.get().as_file()
    }

    /// Keeps the file, under this name. Both places must be on the same file system; see
    /// [`Settings::folder`](super::Settings::folder).
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if there is such a file already, or it cannot be made there. Then
    /// the temporary file is deleted.
    pub async fn persist(self, path: impl Into<PathBuf>) -> Result<fs::File> {
        let (file, path) = (self.into_inner(), path.into());
        blocking(move || Ok(file.persist_noclobber(path)?)).await.map_err(refused)
    }

    /// The same as a value of the crate `tempfile`.
    pub fn into_inner(mut self) -> NamedTempFile {
        self.owned.0.take().expect("it is there until this is dropped")
    }
}

/// Deletes the file in the pool: for a large one that takes its time.
#[derive(Debug)]
struct Owned(Option<NamedTempFile>);

impl Owned {
    fn get(&self) -> &NamedTempFile {
        self.0.as_ref().expect("it is there until this is dropped")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Where there is no pool any more, the file goes at once.
        if let (Some(file), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

/// Fills a temporary file.
pub(super) struct Writer {
    owned: Owned,
    length: u64,
    /// What is to be written. Copied, for a chunk may be one byte that holds on to a buffer.
    gathered: Vec<u8>,
}

impl Writer {
    pub(super) async fn new(folder: Option<PathBuf>) -> Result<Writer> {
        let folder = folder.unwrap_or_else(std::env::temp_dir);
        let file = blocking(|| NamedTempFile::new_in(folder)).await.map_err(refused)?;
        Ok(Writer { owned: Owned(Some(file)), length: 0, gathered: Vec::new() })
    }

    pub(super) async fn write(&mut self, chunk: &[u8]) -> Result<()> {
        self.length += chunk.len() as u64;
        self.gathered.extend_from_slice(chunk);
        if self.gathered.len() >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    pub(super) async fn finish(mut self) -> Result<TempFile> {
        self.flush().await?;
        Ok(TempFile { owned: self.owned, length: self.length })
    }

    async fn flush(&mut self) -> Result<()> {
        let mut file = self.owned.0.take().expect("a write that failed was the last");
        let mut gathered = std::mem::take(&mut self.gathered);
        let written = blocking(move || {
            file.write_all(&gathered)?;
            gathered.clear();
            Ok((file, gathered))
        });
        let (file, gathered) = written.await.map_err(refused)?;
        (self.owned.0, self.gathered) = (Some(file), gathered);
        Ok(())
    }
}

fn refused(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "an upload could not be stored").because(error)
}
