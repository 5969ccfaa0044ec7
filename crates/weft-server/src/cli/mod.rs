//! The command line.

pub(crate) mod args; // its arguments
pub(crate) mod cache; // `weft cache`
pub(crate) mod certificates; // `weft certificates`
pub(crate) mod help; // its help text
pub(crate) mod kubernetes; // options of `weft kubernetes`
#[cfg(test)]
mod docs_sync; // tests that file, command line and documentation agree
