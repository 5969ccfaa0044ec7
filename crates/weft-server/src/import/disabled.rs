//! `weft import` of a program without the feature `import`.

#[path = "source.rs"]
mod source; // a configuration of another server

pub(crate) use self::source::{Source, SourceKind};

/// Reports that the program has no import.
pub(crate) fn import(_: &Source) -> Result<(String, bool), String> {
    Err("this program was compiled without the feature `import`".to_owned())
}
