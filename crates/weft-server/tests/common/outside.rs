//! Outside programs, and how they are called.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::{Ended, LONG_PATIENCE, Program};

/// Runs a program to its end, which must be a success.
#[track_caller]
pub fn succeed(command: &mut Command) -> Ended {
    let ended = Program::start(command).end_within(LONG_PATIENCE);
    assert_eq!(ended.status, Ok(0), "{command:?}: {}{}", ended.stdout, ended.stderr);
    ended
}

/// A program with as many descriptors as the system lets it have.
pub fn with_descriptors(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -n "$(ulimit -Hn)"; exec "$0" "$@""#]).arg(program);
    command
}

/// Shows a page in a browser without a window: the document as it stands after all
/// scripts, and what the browser has to say.
#[track_caller]
pub fn browse(url: &str) -> Ended {
    browse_with(&[], url)
}

#[track_caller]
pub fn browse_with(options: &[&str], url: &str) -> Ended {
    let profile = tempfile::tempdir().unwrap();
    succeed(chromium(profile.path()).args(options).args(["--dump-dom", url]))
}

/// The browser, which tells on stderr what pages write to its console.
pub fn chromium(profile: &Path) -> Command {
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
    command.args(["--no-first-run", "--disable-background-networking"]);
    command.args(["--disable-component-update", "--disable-sync"]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.args(["--enable-logging=stderr", "--v=0"]);
    command
}

/// What the page wrote to the browser's console, or the browser on its behalf.
pub fn console(ended: &Ended) -> Vec<&str> {
    ended.stderr.lines().filter(|line| line.contains("CONSOLE")).collect()
}

/// The first heading of a page, with its tags.
pub fn heading(page: &str) -> &str {
    let end = page.find("</h1>").expect("a heading");
    &page[page.find("<h1").expect("a heading")..end]
}

/// `curl`, quiet unless something fails, and never by way of a proxy.
pub fn curl() -> Command {
    let mut command = Command::new("curl");
    command.args(["--disable", "--silent", "--show-error", "--noproxy", "*"]);
    command
}

/// Bytes that do not repeat with any power of two.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}
