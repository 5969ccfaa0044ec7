//! The folder: its files by their numbers.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use super::checksum::Checksum;
use super::file_format::{EXPIRED_AT, FileHead, Layout, PIECE, damaged, read_head};
use crate::disk::{File, FileVersion};
use crate::sys::{
    create_private_file, create_private_folder, fstat, is_writable_by_others, open_lock_file,
    open_private_file,
};

/// Name of the file whose lock shows that a process uses the folder.
const LOCK_NAME: &str = "lock";

/// Beginning of the names of files that are not complete.
const TEMPORARY: &str = "new-";

/// A folder of the cache. No name in it depends on a request.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

/// A name in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileName {
    /// A file with this number.
    Complete(u64),
    Temporary,
    /// Not of the cache, or the lock.
    Other,
}

impl Folder {
    /// Opens a folder, which is created if it does not exist.
    ///
    /// # Errors
    /// If it cannot be created, or if other users may write to it.
    pub(super) fn open(path: PathBuf) -> io::Result<Folder> {
        create_private_folder(&path)?;
        if is_writable_by_others(&path)? {
            return Err(io::Error::other("other users may write to it; expected the mode 0700"));
        }
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Takes the folder for this process; `None` while another has it.
    pub(super) fn try_lock(&self) -> io::Result<Option<fs::File>> {
        let file = open_lock_file(&self.0.join(LOCK_NAME))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    pub(super) fn path_of(&self, id: u64) -> PathBuf {
        self.0.join(format!("{id:016x}"))
    }

    fn temporary_path(&self, id: u64) -> PathBuf {
        self.0.join(format!("{TEMPORARY}{id:016x}"))
    }

    pub(super) fn open_file(&self, id: u64) -> io::Result<fs::File> {
        open_private_file(&self.path_of(id), false)
    }

    /// Removes a file. It may have been removed already.
    pub(super) fn remove(&self, id: u64) {
        // A file that cannot be removed is found at the next start.
        let _ = fs::remove_file(self.path_of(id));
    }

    /// Marks a file as expired.
    pub(super) fn expire(&self, id: u64) -> io::Result<()> {
        let mut file = open_private_file(&self.path_of(id), true)?;
        file.seek(io::SeekFrom::Start(EXPIRED_AT))?;
        file.write_all(&[1])
    }

    /// Replaces the head of a file. Returns its length and its version. A crash meanwhile leaves a
    /// damaged file.
    ///
    /// # Errors
    /// Errors of the system, and [`damaged`], also if there is no room for the head.
    pub(super) fn update(
        &self,
        id: u64,
        head: &[u8],
        is_expired: bool,
    ) -> io::Result<(u64, FileVersion)> {
        let mut file = open_private_file(&self.path_of(id), true)?;
        let FileHead { layout, .. } = read_head(&file, fstat(&file)?.length)?;
        let layout = layout.with_head(head.len() as u64).ok_or_else(damaged)?;
        file.rewind()?;
        file.write_all(&layout.start_of_file(head, is_expired))?;
        Ok((layout.file_length(), FileVersion::new(&fstat(&file)?)))
    }

    /// Writes a file with a head and a content. Nobody sees it before it is complete. Returns its
    /// length and its version.
    ///
    /// # Errors
    /// Errors of the system. No file remains.
    pub(super) fn write(
        &self,
        id: u64,
        head: &[u8],
        is_expired: bool,
        content: &File,
    ) -> io::Result<(u64, FileVersion)> {
        let mut file = IncompleteFile::create(self, id, head.len())?;
        for at in (0..content.length).step_by(PIECE) {
            let end = content.length.min(at + PIECE as u64);
            file.append(&content.clone().slice(at..end).read()?)?;
        }
        file.finish(self, head, is_expired)
    }
}

/// A file to which a content is written. Without [`finish`](IncompleteFile::finish) it is removed.
#[derive(Debug)]
pub(super) struct IncompleteFile {
    file: fs::File,
    path: PathBuf,
    id: u64,
    head_length: usize,
    checksum: Checksum,
    length: u64,
}

impl IncompleteFile {
    /// Creates a file with room for a head of this length.
    pub(super) fn create(
        folder: &Folder,
        id: u64,
        head_length: usize,
    ) -> io::Result<IncompleteFile> {
        let path = folder.temporary_path(id);
        let file = create_private_file(&path)?;
        let checksum = Checksum::default();
        let mut file = IncompleteFile { file, path, id, head_length, checksum, length: 0 };
        let start = file.layout().content_start();
        file.file.seek(io::SeekFrom::Start(start))?;
        Ok(file)
    }

    /// Appends a part of the content.
    pub(super) fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        self.file.write_all(piece)?;
        self.checksum.update(piece);
        self.length += piece.len() as u64;
        Ok(())
    }

    /// Writes the head, and gives the file its name. Returns its length and its version.
    pub(super) fn finish(
        mut self,
        folder: &Folder,
        head: &[u8],
        is_expired: bool,
    ) -> io::Result<(u64, FileVersion)> {
        let layout = self.layout();
        // An empty content has no byte that makes the room for the head.
        self.file.set_len(layout.file_length())?;
        self.file.rewind()?;
        self.file.write_all(&layout.start_of_file(head, is_expired))?;
        fs::rename(&self.path, folder.path_of(self.id))?;
        // After that, since it changes the times.
        Ok((layout.file_length(), FileVersion::new(&fstat(&self.file)?)))
    }

    fn layout(&self) -> Layout {
        Layout::new(self.head_length as u64, self.length, self.checksum.clone().finish())
    }
}

impl Drop for IncompleteFile {
    fn drop(&mut self) {
        // Not there after `finish`.
        let _ = fs::remove_file(&self.path);
    }
}

impl FileName {
    pub(super) fn parse(name: &OsStr) -> FileName {
        let Some(name) = name.to_str() else { return FileName::Other };
        let is_number = |text: &str| text.len() == 16 && text.bytes().all(is_digit);
        match name.strip_prefix(TEMPORARY) {
            Some(rest) if is_number(rest) => FileName::Temporary,
            None if is_number(name) => {
                u64::from_str_radix(name, 16).map_or(FileName::Other, FileName::Complete)
            }
            _ => FileName::Other,
        }
    }
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}
