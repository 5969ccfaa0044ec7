//! The command line.

pub(crate) mod args; // its arguments
pub(crate) mod cache; // `weft cache`
pub(crate) mod certificates; // `weft certificates`
pub(crate) mod cluster; // `weft cluster`
pub(crate) mod completions; // `weft completions`
pub(crate) mod control_request; // `weft reload`, `stop` and `upgrade`
mod file_reference; // all keys of a file
pub(crate) mod foreign_commands; // commands of other servers
pub(crate) mod hash_password; // `weft hash-password`
pub(crate) mod help; // its help text
pub(crate) mod kubernetes; // options of `weft kubernetes`
pub(crate) mod manual; // `weft man`
#[cfg(test)]
mod docs_sync; // tests that file, command line and documentation agree
