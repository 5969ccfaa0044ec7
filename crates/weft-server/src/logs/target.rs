//! Target of an output: a file, a stream or a logging daemon.

use std::io;

use super::daemon::DaemonLog;
use super::file::LogFile;

pub(super) enum Target {
    File(LogFile),
    Daemon(Box<DaemonLog>),
}

impl Target {
    /// Name of a file or a daemon. A stream has none.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Target::File(file) => file.path().map(|path| path.display().to_string()),
            Target::Daemon(daemon) => Some(daemon.name().to_owned()),
        }
    }

    /// Returns true if the next bytes continue a partially written line.
    pub(super) fn is_within_line(&self) -> bool {
        match self {
            Target::File(file) => file.is_within_line(),
            Target::Daemon(_) => false,
        }
    }

    /// Takes the number of lines whose rest was dropped, because their file was removed.
    pub(super) fn take_torn(&mut self) -> u64 {
        match self {
            Target::File(file) => file.take_torn(),
            Target::Daemon(_) => 0,
        }
    }

    /// Takes the error of a failed rotation.
    pub(super) fn take_rotation_error(&mut self) -> Option<io::Error> {
        match self {
            Target::File(file) => file.take_rotation_error(),
            Target::Daemon(_) => None,
        }
    }

    /// Opens the path or the connection again.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        match self {
            Target::File(file) => file.reopen(),
            Target::Daemon(daemon) => {
                daemon.reconnect();
                Ok(())
            }
        }
    }

    /// Writes the beginning of `lines`; to a daemon, the first line only. Returns the number of
    /// bytes written.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match self {
            Target::File(file) => file.write(lines),
            Target::Daemon(daemon) => {
                let end = lines.iter().position(|b| *b == b'\n').unwrap_or(lines.len());
                daemon.send(&lines[..end])?;
                Ok(lines.len().min(end + 1))
            }
        }
    }
}
