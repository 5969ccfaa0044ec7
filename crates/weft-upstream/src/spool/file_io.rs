//! Reads and writes of temporary files.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::sys::{read_exact_at, read_nowait, write_all_at};

/// A write to a temporary file. It may block.
pub(crate) struct FileWrite {
    file: Option<Arc<File>>,
    at: u64,
    pieces: Vec<Bytes>,
}

/// The file after a successful write, or the pieces that were not written.
pub(crate) type FileWritten = Result<Arc<File>, (io::Error, Vec<Bytes>)>;

/// A read from a temporary file. It may block.
pub(crate) struct FileRead {
    file: Arc<File>,
    at: u64,
    length: usize,
}

impl FileWrite {
    pub(crate) fn new(file: Option<Arc<File>>, at: u64, pieces: Vec<Bytes>) -> FileWrite {
        FileWrite { file, at, pieces }
    }

    /// Writes the pieces. Creates the file before its first write.
    pub(crate) fn run(self) -> FileWritten {
        let FileWrite { file, at, pieces } = self;
        match write_pieces(file, at, &pieces) {
            Ok(file) => Ok(file),
            Err(error) => Err((error, pieces)),
        }
    }
}

fn write_pieces(file: Option<Arc<File>>, mut at: u64, pieces: &[Bytes]) -> io::Result<Arc<File>> {
    let file = match file {
        Some(file) => file,
        None => Arc::new(tempfile::tempfile()?),
    };
    for piece in pieces {
        write_all_at(&file, piece, at)?;
        at += piece.len() as u64;
    }
    Ok(file)
}

impl FileRead {
    pub(crate) fn new(file: Arc<File>, at: u64, length: usize) -> FileRead {
        FileRead { file, at, length }
    }

    /// Reads bytes that are in the page cache; `None` if the read would wait for the disk, or if
    /// the file system does not support `RWF_NOWAIT`.
    pub(crate) fn try_now(&self) -> io::Result<Option<Bytes>> {
        let mut buffer = vec![0; self.length];
        match read_nowait(&self.file, &mut buffer, self.at)? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(read) => {
                buffer.truncate(read);
                Ok(Some(buffer.into()))
            }
            None => Ok(None),
        }
    }

    /// Returns a read of at most `max` bytes at the same place.
    pub(crate) fn limit(self, max: usize) -> FileRead {
        FileRead { length: self.length.min(max), ..self }
    }

    pub(crate) fn run(self) -> io::Result<Bytes> {
        let mut buffer = vec![0; self.length];
        read_exact_at(&self.file, &mut buffer, self.at)?;
        Ok(buffer.into())
    }
}
