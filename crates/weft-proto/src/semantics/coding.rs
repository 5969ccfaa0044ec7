//! The names of content codings (RFC 9110 §8.4.1).

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `br`. The smallest files. As a stream it is no better than gzip, and needs more memory.
    Brotli,
    /// `zstd`. The fastest by far.
    Zstd,
    /// `gzip`. Supported by every client.
    Gzip,
}

impl Coding {
    /// All codings, in ascending order of the size of compressed files.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// Returns the name of the coding in fields.
    pub fn token(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// Returns the extension of compressed files, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zst",
            Coding::Gzip => "gz",
        }
    }

    /// Returns true if `name` names this coding (RFC 9110 §8.4.1.3: `x-gzip` is gzip).
    pub(crate) fn is_named(self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.token().as_bytes())
            || self == Coding::Gzip && name.eq_ignore_ascii_case(b"x-gzip")
    }
}
