//! Users and hashed passwords, which Weft reads from a file.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// Files of users that the configuration needs, beginning with the named one.
#[derive(Default)]
pub(super) struct Users {
    first: Option<PathBuf>,
    /// Contents of the files.
    files: RefCell<Vec<String>>,
}

impl Users {
    pub(super) fn new(first: Option<&Path>) -> Users {
        Users { first: first.map(Path::to_owned), files: RefCell::default() }
    }

    /// Returns the name of the file with these lines; `None` if there is no name for files.
    pub(super) fn file(&self, lines: &str) -> Option<String> {
        let first = self.first.as_ref()?;
        let mut files = self.files.borrow_mut();
        let index = files.iter().position(|known| known == lines).unwrap_or_else(|| {
            files.push(lines.to_owned());
            files.len() - 1
        });
        Some(name(first, index))
    }

    /// Returns the files with their contents.
    pub(super) fn into_files(self) -> Vec<(PathBuf, String)> {
        let Some(first) = self.first else { return Vec::new() };
        let files = self.files.into_inner().into_iter().enumerate();
        files.map(|(index, text)| (name(&first, index).into(), text)).collect()
    }
}

/// Returns the name of a file: the first one, then with `-2` and so on.
fn name(first: &Path, index: usize) -> String {
    let first = first.to_string_lossy().into_owned();
    if index == 0 { first } else { format!("{first}-{}", index + 1) }
}

/// Decodes standard base64, in which Caddy before 2.7 has hashes.
pub(super) fn decode_base64(text: &str) -> Option<String> {
    let digit = |b: u8| match b {
        b'A'..=b'Z' => Some(u32::from(b - b'A')),
        b'a'..=b'z' => Some(u32::from(b - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(b - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for b in text.trim_end_matches('=').bytes() {
        bits = bits << 6 & 0xff_ffff | digit(b)?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_files() {
        let users = Users::new(Some(Path::new("users")));
        assert_eq!(users.file("a"), Some("users".to_owned()));
        assert_eq!(users.file("b"), Some("users-2".to_owned()));
        assert_eq!(users.file("a"), Some("users".to_owned()));
        assert_eq!(users.into_files().len(), 2);
        assert_eq!(Users::new(None).file("a"), None);
    }

    #[test]
    fn decodes_base64() {
        assert_eq!(decode_base64("JDJhJDE0JA==").as_deref(), Some("$2a$14$"));
        assert_eq!(decode_base64("$2a$14$"), None);
    }
}
