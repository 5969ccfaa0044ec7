//! `weft import` of a program without the feature `import`.

use std::path::PathBuf;

/// A configuration of another server.
#[expect(dead_code, reason = "nothing reads it")]
pub(crate) struct Source {
    pub(crate) kind: SourceKind,
    pub(crate) path: PathBuf,
    pub(crate) users: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    Nginx,
    Caddy,
}

/// Reports that the program has no import.
pub(crate) fn import(_: &Source) -> Result<(String, bool), String> {
    Err("this program was compiled without the feature `import`".to_owned())
}
