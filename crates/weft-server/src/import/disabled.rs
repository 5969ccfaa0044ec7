//! `weft import` of a program without the feature `import`.

use std::path::Path;

/// Reports that the program has no import.
pub(crate) fn import_nginx(_: &Path) -> Result<(String, bool), String> {
    Err("this program was compiled without the feature `import`".to_owned())
}
