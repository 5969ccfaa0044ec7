//! Compression of rotated log files: `access.log.1` becomes `access.log.1.gz`.
//!
//! A thread does the work, one at a time for a log, so that lines are written meanwhile. It reads a
//! rotated file and writes a temporary one. The result replaces the rotated file while the log
//! itself is locked, because a rotation, also one of another process, changes the numbers under
//! that lock.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::rotation::{compressed, is_at, is_same_file, numbered};

/// Compresses the rotated files of a log.
#[derive(Default)]
pub(super) struct Compressor {
    is_running: Arc<AtomicBool>,
}

impl Compressor {
    /// Starts to compress the rotated files, unless that is in progress. Files that are rotated
    /// meanwhile are compressed after the next rotation.
    pub(super) fn start(&self, path: &Path, max_files: u32) {
        if self.is_running.swap(true, Relaxed) {
            return;
        }
        let (path, is_running) = (path.to_owned(), self.is_running.clone());
        let work = move || {
            if let Err(error) = compress_all(&path, max_files) {
                log::error!("cannot compress the rotated files of {}: {error}", path.display());
            }
            is_running.store(false, Relaxed);
        };
        let thread = std::thread::Builder::new().name("weft gzip".to_owned());
        if thread.spawn(work).is_err() {
            self.is_running.store(false, Relaxed);
        }
    }
}

fn compress_all(path: &Path, max_files: u32) -> io::Result<()> {
    for number in 1..=max_files {
        match File::open(numbered(path, number)) {
            Ok(rotated) => compress(path, &rotated, max_files)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Compresses one rotated file, which may get another number meanwhile.
fn compress(path: &Path, rotated: &File, max_files: u32) -> io::Result<()> {
    let temporary = temporary(path);
    let mut options = File::options();
    let output = options.write(true).create(true).truncate(false).open(&temporary)?;
    match output.try_lock() {
        // Another process is compressing, such as the predecessor of an upgrade.
        Err(TryLockError::WouldBlock) => return Ok(()),
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    let result = write_compressed(rotated, &output)
        .and_then(|()| replace(path, rotated, &temporary, max_files));
    if result.is_err() {
        // The rotated file stays as it is.
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn write_compressed(rotated: &File, output: &File) -> io::Result<()> {
    let metadata = rotated.metadata()?;
    output.set_len(0)?;
    output.set_permissions(metadata.permissions())?;
    let mut encoder = GzEncoder::new(output, Compression::default());
    io::copy(&mut BufReader::new(rotated), &mut encoder)?;
    encoder.finish()?.flush()?;
    output.set_modified(metadata.modified()?)?;
    output.sync_all()
}

/// Replaces the rotated file, wherever it is by now.
fn replace(path: &Path, rotated: &File, temporary: &Path, max_files: u32) -> io::Result<()> {
    loop {
        let log = match File::open(path) {
            Ok(log) => Some(log),
            // There is no log whose rotation could change the numbers.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(log) = &log {
            // A file system without locks has no other writers.
            let _ = log.lock();
            if !is_at(path, log)? {
                continue;
            }
        }
        let wanted = rotated.metadata()?;
        let is_wanted = |number: &u32| {
            fs::metadata(numbered(path, *number)).is_ok_and(|found| is_same_file(&found, &wanted))
        };
        // A rotation or another program may have removed it.
        return match (1..=max_files).find(is_wanted) {
            Some(number) => {
                fs::rename(temporary, compressed(path, number))?;
                fs::remove_file(numbered(path, number))
            }
            None => fs::remove_file(temporary),
        };
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz.tmp");
    name.into()
}
