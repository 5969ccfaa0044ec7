//! A script that handles a request.

use std::path::PathBuf;

use weft::path::decode;

/// Script that the path of a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Absolute path of the file; empty for an application without one.
    pub file: PathBuf,
    /// Directory beneath which the path was resolved.
    pub root: PathBuf,
    /// Part of the request's path that names the script, decoded: without the mount, with a leading
    /// slash. Empty for the only script of a route.
    pub name: Vec<u8>,
    /// Rest of the path, decoded.
    pub path_info: Vec<u8>,
}

impl Script {
    /// Returns the script for an application without a file, which gets the whole path.
    pub fn of_application(path: &str) -> Script {
        let path_info = decode(path.as_bytes()).into_owned();
        Script { file: PathBuf::new(), root: PathBuf::new(), name: Vec::new(), path_info }
    }
}
