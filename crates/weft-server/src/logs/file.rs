//! Output of a log: a file that lines are appended to, or a stream.
//!
//! Several processes may append to the same file, for example during an upgrade: each passes
//! whole lines to a single write, and the kernel appends them without interleaving.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::compression::Compressor;
use super::rotation::{Rotation, is_same_file};
use crate::base::sys::{FileId, file_id, has_no_name, read_exact_at};

pub(super) struct LogFile {
    file: File,
    /// `None` for a stream, which is neither rotated nor reopened.
    rotated: Option<RotatedPath>,
    /// Set if the last write ended within a line.
    is_within_line: bool,
    /// Number of lines whose rest was dropped, because their file was removed.
    torn: u64,
    /// Error of the last rotation.
    rotation_error: Option<io::Error>,
}

struct RotatedPath {
    path: PathBuf,
    rotation: Rotation,
    /// Period in which the file was begun.
    period: u64,
    compressor: Compressor,
}

impl RotatedPath {
    /// Removes rotated files that are too old, and compresses the others.
    fn maintain(&self) {
        self.rotation.remove_old(&self.path);
        if self.rotation.compress {
            self.compressor.start(&self.path, self.rotation.max_files);
        }
    }
}

impl LogFile {
    pub(super) fn open(path: &Path, rotation: Rotation) -> io::Result<LogFile> {
        let file = append_to(path)?;
        // A pipe has no last line and may have no reader yet.
        if file.metadata()?.is_file() {
            terminate_last_line(path, &file)?;
        }
        let period = rotation.period_of(&file);
        let rotated = RotatedPath {
            path: path.to_owned(),
            rotation,
            period,
            compressor: Compressor::default(),
        };
        rotated.maintain();
        Ok(LogFile { rotated: Some(rotated), ..LogFile::stream(file) })
    }

    pub(super) fn stream(file: File) -> LogFile {
        LogFile { file, rotated: None, is_within_line: false, torn: 0, rotation_error: None }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.rotated.as_ref().map(|rotated| &*rotated.path)
    }

    /// Returns the identity of the open file.
    pub(super) fn id(&self) -> Option<FileId> {
        let metadata = self.file.metadata().ok()?;
        Some(file_id(&metadata))
    }

    /// Returns the device of a regular file, which never blocks for long as a pipe does.
    pub(super) fn device(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok().filter(Metadata::is_file)?;
        Some(file_id(&metadata).device)
    }

    /// Returns true if the next bytes continue a partially written line.
    pub(super) fn is_within_line(&self) -> bool {
        self.is_within_line
    }

    /// Takes the error of a failed rotation.
    pub(super) fn take_rotation_error(&mut self) -> Option<io::Error> {
        self.rotation_error.take()
    }

    /// Takes the number of lines whose rest was dropped, because their file was removed.
    pub(super) fn take_torn(&mut self) -> u64 {
        std::mem::take(&mut self.torn)
    }

    /// Opens the path again. On error the current file stays in use.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Some(rotated) = &mut self.rotated {
            let file = match append_to(&rotated.path) {
                Err(error)
                    if error.kind() == io::ErrorKind::StorageFull && is_removed(&self.file) =>
                {
                    // The removed file still occupies the disk, and nobody can read it.
                    self.file.set_len(0)?;
                    append_to(&rotated.path)?
                }
                opened => opened?,
            };
            self.is_within_line &= is_same_file(&file.metadata()?, &self.file.metadata()?);
            rotated.period = rotated.rotation.period_of(&file);
            self.file = file;
        }
        Ok(())
    }

    /// Passes as many of the lines as fit to one write. Returns the number of bytes written.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let chunk = match self.is_within_line {
            // A line that a full disk has cut would otherwise keep a removed file open, and so the
            // disk full.
            true if self.rotated.is_some() && is_removed(&self.file) => {
                self.reopen()?;
                self.torn += 1;
                return Ok(first_line(lines).len());
            }
            true => first_line(lines),
            false => self.fitting_lines(lines),
        };
        let written = (&self.file).write(chunk)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.is_within_line = chunk[written - 1] != b'\n';
        Ok(written)
    }

    /// Returns the lines that fit within the maximum size, but at least one. Rotates the file first
    /// if none fits.
    fn fitting_lines<'a>(&mut self, lines: &'a [u8]) -> &'a [u8] {
        let Some((mut size, max_bytes)) = self.size_and_max() else { return lines };
        let available =
            |size| usize::try_from(max_bytes.saturating_sub(size)).unwrap_or(usize::MAX);
        if size > 0 && (available(size) < first_line(lines).len() || self.is_of_former_period()) {
            match self.rotate() {
                Ok(true) => size = self.size_and_max().map_or(0, |(size, _)| size),
                Ok(false) => return lines,
                Err(error) => {
                    self.rotation_error = Some(error);
                    return lines;
                }
            }
        }
        let fitting = &lines[..available(size).min(lines.len())];
        match fitting.iter().rposition(|b| *b == b'\n') {
            Some(end) => &lines[..=end],
            None => first_line(lines),
        }
    }

    /// Returns current and maximum size, if the file is subject to rotation.
    fn size_and_max(&self) -> Option<(u64, u64)> {
        let rotated = self.rotated.as_ref()?;
        let metadata = self.file.metadata().ok().filter(Metadata::is_file)?;
        // A removed file counts as full, so that a new one is created.
        let size = if has_no_name(&metadata) { u64::MAX } else { metadata.len() };
        Some((size, rotated.rotation.max_bytes))
    }

    /// Rotates the file and opens a new one. Returns false if another process is rotating it.
    fn rotate(&mut self) -> io::Result<bool> {
        let Some(RotatedPath { path, rotation, .. }) = &self.rotated else { return Ok(false) };
        let is_rotated = rotation.rotate(path, &self.file)?;
        if is_rotated {
            self.reopen()?;
            self.rotated.iter().for_each(RotatedPath::maintain);
        }
        Ok(is_rotated)
    }

    /// Returns true if the file was begun in a former period.
    fn is_of_former_period(&self) -> bool {
        let is_former = |it: &RotatedPath| it.rotation.current_period() > it.period;
        self.rotated.as_ref().is_some_and(is_former)
    }
}

fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| has_no_name(&metadata))
}

fn first_line(lines: &[u8]) -> &[u8] {
    let end = lines.iter().position(|b| *b == b'\n');
    end.map_or(lines, |end| &lines[..=end])
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

/// Appends a line end to a partial last line, left by a writer that was killed or by a full disk.
fn terminate_last_line(path: &Path, mut file: &File) -> io::Result<()> {
    if let Some(length) = length_if_unterminated(path) {
        // Another process may be in the middle of writing the line.
        std::thread::sleep(Duration::from_millis(20));
        if length_if_unterminated(path) == Some(length) {
            file.write_all(b"\n")?;
        }
    }
    Ok(())
}

/// Returns the length of the file if its last line has no line end. Returns `None` if the process
/// has no permission to read the file.
fn length_if_unterminated(path: &Path) -> Option<u64> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok().filter(Metadata::is_file)?.len();
    let mut last = [b'\n'];
    read_exact_at(&file, &mut last, length.checked_sub(1)?).ok()?;
    (last != *b"\n").then_some(length)
}

#[cfg(test)]
mod tests {
    use super::super::rotation::UNROTATED;
    use super::*;
    use std::fs;

    /// Names and contents of the files, newest first.
    fn files(path: &Path) -> Vec<(String, String)> {
        let mut files: Vec<(String, String)> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    fn write(file: &mut LogFile, mut lines: &[u8]) {
        while !lines.is_empty() {
            let written = file.write(lines).unwrap();
            lines = &lines[written..];
        }
        assert!(file.take_rotation_error().is_none());
    }

    #[test]
    fn rotates_between_lines_by_size_and_count() {
        for (max_bytes, max_files, writes, expected) in [
            // Exactly the maximum size, and one byte more.
            (4, 2, &["a\n", "b\n"][..], &["a\nb\n"][..]),
            (4, 2, &["a\n", "bc\n"], &["bc\n", "a\n"]),
            (4, 2, &["a\nb\nc\n"], &["c\n", "a\nb\n"]),
            // A line above the maximum size is written to a file of its own.
            (4, 2, &["aaaaaa\n", "b\n"], &["b\n", "aaaaaa\n"]),
            (4, 2, &["a\nbbbbbb\nc\n"], &["c\n", "bbbbbb\n", "a\n"]),
            // The oldest file is removed.
            (2, 2, &["a\nb\nc\nd\ne\n"], &["e\n", "d\n", "c\n"]),
            (2, 1, &["a\nb\nc\n"], &["c\n", "b\n"]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            let rotation = Rotation { max_bytes, max_files, ..UNROTATED };
            let mut file = LogFile::open(&path, rotation).unwrap();
            for lines in writes {
                write(&mut file, lines.as_bytes());
            }
            let names = (0..).map(|n| if n == 0 { "log".to_owned() } else { format!("log.{n}") });
            let expected = names.zip(expected.iter().map(|text| (*text).to_owned()));
            assert_eq!(files(&path), expected.collect::<Vec<_>>(), "{max_bytes} {writes:?}");
        }
    }

    #[test]
    fn rotation_fills_gap_in_numbering() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for (name, text) in [("log", "a\n"), ("log.1", "b\n"), ("log.3", "d\n")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let rotation = Rotation { max_bytes: 2, max_files: 9, ..UNROTATED };
        write(&mut LogFile::open(&path, rotation).unwrap(), b"c\n");
        let found: Vec<String> =
            files(&path).into_iter().map(|(name, text)| format!("{name} {text}")).collect();
        assert_eq!(found, ["log c\n", "log.1 a\n", "log.2 b\n", "log.3 d\n"]);
    }

    /// An upgrade has two processes append to the same file.
    #[test]
    fn concurrent_writers_lose_no_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let rotation = Rotation { max_bytes: 1_000, max_files: 1_000, ..UNROTATED };
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let mut file = LogFile::open(&path, rotation).unwrap();
                scope.spawn(move || {
                    for line in 0..2_000 {
                        write(&mut file, format!("{writer} {line}\n").as_bytes());
                    }
                });
            }
        });
        let files = files(&path);
        // Writers may exceed the maximum size while another one rotates the file.
        assert!(files.len() > 3, "{}", files.len());
        let mut lines: Vec<&str> = files.iter().flat_map(|(_, text)| text.lines()).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 8_000);
    }

    const UNLIMITED: Rotation = Rotation { max_bytes: u64::MAX, max_files: 1, ..UNROTATED };

    #[test]
    fn recreates_removed_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut file = LogFile::open(&path, UNLIMITED).unwrap();
        write(&mut file, b"a\n");
        fs::remove_file(&path).unwrap();
        write(&mut file, b"b\nc\n");
        assert_eq!(files(&path), [("log".to_owned(), "b\nc\n".to_owned())]);
    }

    #[test]
    fn terminates_partial_last_line_on_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for (before, after) in [("", "b\n"), ("a\n", "a\nb\n"), ("a", "a\nb\n")] {
            fs::write(&path, before).unwrap();
            write(&mut LogFile::open(&path, UNLIMITED).unwrap(), b"b\n");
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn keeps_writing_if_rotation_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        // A non-empty directory has the name of the rotated file.
        fs::create_dir_all(dir.path().join("log.1/x")).unwrap();
        let rotation = Rotation { max_bytes: 2, max_files: 1, ..UNROTATED };
        let mut file = LogFile::open(&path, rotation).unwrap();
        assert_eq!(file.write(b"a\n").unwrap(), 2);
        assert!(file.take_rotation_error().is_none());
        assert_eq!(file.write(b"b\nc\n").unwrap(), 4);
        assert!(file.take_rotation_error().is_some());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\nc\n");
    }
}
