//! The secret of a cluster, from which keys are derived.

use std::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};

/// A secret that all processes of a cluster have.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(Box<[u8]>);

/// Minimum length of a secret, in bytes.
const MIN_BYTES: usize = 32;

/// Maximum length of a secret, in bytes.
const MAX_BYTES: usize = 1024;

/// Maximum number of secrets in a file.
const MAX_SECRETS: usize = 4;

impl ClusterSecret {
    /// Reads the secrets of a file, one a line: the first is used, and the others are accepted where
    /// two secrets can be, until all processes have the first.
    ///
    /// # Errors
    /// If there is no secret, or one has less than 32 or more than 1,024 bytes, or if there are more
    /// than 4. The text has no part of a secret.
    pub fn read(text: &[u8]) -> Result<Vec<ClusterSecret>, String> {
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        if lines.is_empty() || lines.len() > MAX_SECRETS {
            return Err(format!(
                "expected 1 to {MAX_SECRETS} lines with a secret each, found {}; `openssl rand -hex 32` \
                 generates a secret",
                lines.len()
            ));
        }
        if let Some(line) = lines.iter().find(|line| !(MIN_BYTES..=MAX_BYTES).contains(&line.len()))
        {
            return Err(format!(
                "expected secrets of {MIN_BYTES} to {MAX_BYTES} characters, found one of {}; `openssl \
                 rand -hex 32` generates a secret",
                line.len()
            ));
        }
        Ok(lines.into_iter().map(|line| ClusterSecret(line.into())).collect())
    }

    /// Derives a key for one purpose.
    pub fn derive<const N: usize>(&self, purpose: &str) -> [u8; N] {
        struct Length(usize);
        impl KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let root = Salt::new(HKDF_SHA256, b"weft cluster 1").extract(&self.0);
        let mut key = [0; N];
        let derived =
            root.expand(&[purpose.as_bytes()], Length(N)).and_then(|it| it.fill(&mut key));
        derived.expect("keys are shorter than 255 hashes");
        key
    }
}

/// Does not show the secret.
impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_secrets_in_lines() {
        let (a, b) = ("a".repeat(32), "b".repeat(1024));
        for (text, count) in [
            (a.clone(), Some(1)),
            (format!("{a}\n"), Some(1)),
            (format!(" {a}\r\n\n{b}\n"), Some(2)),
            (format!("{a}\n").repeat(4), Some(4)),
            (format!("{a}\n").repeat(5), None),
            ("a".repeat(31), None),
            ("a".repeat(1025), None),
            (format!("{a}\nshort"), None),
            ("\n".to_owned(), None),
            (String::new(), None),
        ] {
            let read = ClusterSecret::read(text.as_bytes());
            assert_eq!(read.as_ref().ok().map(Vec::len), count, "{text:?}");
            assert!(!format!("{read:?}").contains("aaaa"), "{read:?}");
            assert!(!format!("{read:?}").contains("short"), "{read:?}");
        }
    }

    #[test]
    fn keys_depend_on_secret_and_purpose() {
        let secret = |letter: &str| ClusterSecret::read(letter.repeat(32).as_bytes()).unwrap();
        let key = |letter, purpose| secret(letter)[0].derive::<32>(purpose);
        assert_eq!(key("a", "x"), key("a", "x"));
        assert_ne!(key("a", "x"), key("a", "y"));
        assert_ne!(key("a", "x"), key("b", "x"));
    }
}
