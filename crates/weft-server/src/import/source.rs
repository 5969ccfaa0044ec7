//! A configuration of another server, which `weft import` reads.

use std::path::PathBuf;

/// A configuration of another server, and the files that the import writes.
#[cfg_attr(not(feature = "import"), expect(dead_code, reason = "nothing reads it"))]
pub(crate) struct Source {
    pub(crate) kind: SourceKind,
    pub(crate) path: PathBuf,
    /// File for the users and hashed passwords of a Caddyfile.
    pub(crate) users: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    Nginx,
    Caddy,
}
