//! A file that lines are appended to, or a stream.
//!
//! Several processes may append to the same file, as two do during an upgrade: each hands
//! whole lines to the kernel, which appends them as they are.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::rotation::{Rotation, is_same};

pub(super) struct LogFile {
    file: File,
    /// None for a stream, which is neither rotated nor opened anew.
    place: Option<Place>,
    /// What was written last is a part of a line.
    is_within_line: bool,
    /// Why it is not rotated.
    problem: Option<io::Error>,
}

struct Place {
    path: PathBuf,
    rotation: Rotation,
}

impl LogFile {
    pub(super) fn open(path: &Path, rotation: Rotation) -> io::Result<LogFile> {
        let file = append_to(path)?;
        // A pipe may have no reader yet, and has no last line.
        if file.metadata()?.is_file() {
            end_last_line(path, &file)?;
        }
        let place = Place { path: path.to_owned(), rotation };
        Ok(LogFile { place: Some(place), ..LogFile::stream(file) })
    }

    pub(super) fn stream(file: File) -> LogFile {
        LogFile { file, place: None, is_within_line: false, problem: None }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.place.as_ref().map(|place| &*place.path)
    }

    /// Whether both lead to the same place.
    pub(super) fn is_same(&self, other: &LogFile) -> bool {
        match (self.file.metadata(), other.file.metadata()) {
            (Ok(ours), Ok(theirs)) => is_same(&ours, &theirs),
            _ => false,
        }
    }

    /// Whether the next bytes belong to a line that is there in part.
    pub(super) fn is_within_line(&self) -> bool {
        self.is_within_line
    }

    /// Why it was not rotated, if it should have been.
    pub(super) fn take_problem(&mut self) -> Option<io::Error> {
        self.problem.take()
    }

    /// Opens what has its name now; if that fails, the file stays as it was.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Some(place) = &self.place {
            let file = append_to(&place.path)?;
            self.is_within_line &= is_same(&file.metadata()?, &self.file.metadata()?);
            self.file = file;
        }
        Ok(())
    }

    /// Writes as much of the lines as the file takes at once; how much that was.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let piece = match self.is_within_line {
            true => first_line(lines),
            false => self.make_room(lines),
        };
        let written = (&self.file).write(piece)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.is_within_line = piece[written - 1] != b'\n';
        Ok(written)
    }

    /// The lines that the file has room for, but one at least. It is rotated if it has room for
    /// none.
    fn make_room<'a>(&mut self, lines: &'a [u8]) -> &'a [u8] {
        let Some((mut size, max_bytes)) = self.sizes() else { return lines };
        let room = |size| usize::try_from(max_bytes.saturating_sub(size)).unwrap_or(usize::MAX);
        if size > 0 && room(size) < first_line(lines).len() {
            match self.rotate() {
                Ok(true) => size = self.sizes().map_or(0, |(size, _)| size),
                Ok(false) => return lines,
                Err(error) => {
                    self.problem = Some(error);
                    return lines;
                }
            }
        }
        let fits = &lines[..room(size).min(lines.len())];
        match fits.iter().rposition(|b| *b == b'\n') {
            Some(end) => &lines[..=end],
            None => first_line(lines),
        }
    }

    /// How large it is and how large it may be, if it is one that is rotated.
    fn sizes(&self) -> Option<(u64, u64)> {
        let place = self.place.as_ref()?;
        let metadata = self.file.metadata().ok().filter(Metadata::is_file)?;
        // One that was removed has no room for anything.
        let size = if metadata.nlink() == 0 { u64::MAX } else { metadata.len() };
        Some((size, place.rotation.max_bytes))
    }

    /// Whether there is a new file under its name.
    fn rotate(&mut self) -> io::Result<bool> {
        let Some(Place { path, rotation }) = &self.place else { return Ok(false) };
        let is_free = rotation.rotate(path, &self.file)?;
        if is_free {
            self.reopen()?;
        }
        Ok(is_free)
    }
}

fn first_line(lines: &[u8]) -> &[u8] {
    let end = lines.iter().position(|b| *b == b'\n');
    end.map_or(lines, |end| &lines[..=end])
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

/// Ends a line that its last writer did not end, since it was killed or the disk was full.
fn end_last_line(path: &Path, mut file: &File) -> io::Result<()> {
    if let Some(length) = length_if_unended(path) {
        // Another process may be writing it just now.
        std::thread::sleep(Duration::from_millis(20));
        if length_if_unended(path) == Some(length) {
            file.write_all(b"\n")?;
        }
    }
    Ok(())
}

/// How long the file is, if its last line has no end. Who may not read it cannot know.
fn length_if_unended(path: &Path) -> Option<u64> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok().filter(Metadata::is_file)?.len();
    let mut last = [b'\n'];
    file.read_exact_at(&mut last, length.checked_sub(1)?).ok()?;
    (last != *b"\n").then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The names and contents of the files, the newest first.
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
        assert!(file.take_problem().is_none());
    }

    #[test]
    fn files_are_rotated_between_lines_and_by_size_and_count() {
        for (max_bytes, max_files, writes, expected) in [
            // Exactly as large as it may be, and a byte more.
            (4, 2, &["a\n", "b\n"][..], &["a\nb\n"][..]),
            (4, 2, &["a\n", "bc\n"], &["bc\n", "a\n"]),
            (4, 2, &["a\nb\nc\n"], &["c\n", "a\nb\n"]),
            // A line that is too long is written all the same, and alone.
            (4, 2, &["aaaaaa\n", "b\n"], &["b\n", "aaaaaa\n"]),
            (4, 2, &["a\nbbbbbb\nc\n"], &["c\n", "bbbbbb\n", "a\n"]),
            // The oldest goes.
            (2, 2, &["a\nb\nc\nd\ne\n"], &["e\n", "d\n", "c\n"]),
            (2, 1, &["a\nb\nc\n"], &["c\n", "b\n"]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let rotation = Rotation { max_bytes, max_files };
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
    fn a_gap_among_the_older_files_is_filled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for (name, text) in [("log", "a\n"), ("log.1", "b\n"), ("log.3", "d\n")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let rotation = Rotation { max_bytes: 2, max_files: 9 };
        write(&mut LogFile::open(&path, rotation).unwrap(), b"c\n");
        let found: Vec<String> =
            files(&path).into_iter().map(|(name, text)| format!("{name} {text}")).collect();
        assert_eq!(found, ["log c\n", "log.1 a\n", "log.2 b\n", "log.3 d\n"]);
    }

    /// As an old and a new process do during an upgrade.
    #[test]
    fn several_may_append_to_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let rotation = Rotation { max_bytes: 1_000, max_files: 1_000 };
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
        // Others go on in a file while one is about to rotate it.
        assert!(files.len() > 3, "{}", files.len());
        let mut lines: Vec<&str> = files.iter().flat_map(|(_, text)| text.lines()).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 8_000);
    }

    const ENDLESS: Rotation = Rotation { max_bytes: u64::MAX, max_files: 1 };

    #[test]
    fn a_file_that_was_removed_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = LogFile::open(&path, ENDLESS).unwrap();
        write(&mut file, b"a\n");
        fs::remove_file(&path).unwrap();
        write(&mut file, b"b\nc\n");
        assert_eq!(files(&path), [("log".to_owned(), "b\nc\n".to_owned())]);
    }

    #[test]
    fn a_line_that_was_not_ended_is_ended_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for (before, after) in [("", "b\n"), ("a\n", "a\nb\n"), ("a", "a\nb\n")] {
            fs::write(&path, before).unwrap();
            write(&mut LogFile::open(&path, ENDLESS).unwrap(), b"b\n");
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn a_file_that_cannot_be_rotated_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        // A folder that is not empty takes the place of the older file.
        fs::create_dir_all(folder.path().join("log.1/x")).unwrap();
        let rotation = Rotation { max_bytes: 2, max_files: 1 };
        let mut file = LogFile::open(&path, rotation).unwrap();
        assert_eq!(file.write(b"a\n").unwrap(), 2);
        assert!(file.take_problem().is_none());
        assert_eq!(file.write(b"b\nc\n").unwrap(), 4);
        assert!(file.take_problem().is_some());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\nc\n");
    }
}
