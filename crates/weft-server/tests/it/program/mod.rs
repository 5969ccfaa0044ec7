//! The features of the program that docs/server.md documents.

mod arguments;
mod commands;
mod files;
mod stopping;
mod sockets;
mod access_log;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::common::{
    self, Client, ProgramOutput, Response, Signal, Weft, report_skipped, repository, run, until,
    weft,
};
use tempfile::TempDir;

/// Creates a temporary directory with these files.
fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        fs::write(folder.path().join(name), contents).unwrap();
    }
    folder
}

fn small_site() -> TempDir {
    folder_with(&[("index.html", "<h1>top</h1>"), ("a.txt", "A\n")])
}

#[track_caller]
fn assert_serves(mut client: Client) {
    let response = client.get("/a.txt");
    assert_eq!((response.status, &response.body[..]), (200, &b"A\n"[..]));
}

/// Returns true if the machine has IPv6; otherwise reports the test as skipped.
fn has_ipv6() -> bool {
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if !has_ipv6 {
        report_skipped("the machine has no IPv6");
    }
    has_ipv6
}

// -- shared by the modules

/// Lists the files below a directory, as paths relative to the site.
fn list(folder: &Path, prefix: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => list(&entry.path(), &format!("{name}/"), files),
            false => files.push(name),
        }
    }
}
