//! Calls that Linux and the other Unix systems have in common.

use std::ffi::OsStr;
use std::fs;
#[cfg(feature = "signal")]
use std::future::poll_fn;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "signal")]
use std::task::Poll;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Result;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::sockets::is_listening_stream;
use super::system::nonblocking_socket;
use super::types::{AsFd, EntryKind, FileStat, OwnedFd};

impl FileStat {
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "the types of the fields differ between systems"
    )]
    #[inline]
    pub(super) fn new(stat: &Stat) -> FileStat {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => EntryKind::Symlink,
            _ => EntryKind::Other,
        };
        let any_execute = Mode::XUSR | Mode::XGRP | Mode::XOTH;
        FileStat {
            kind,
            is_executable: Mode::from_raw_mode(stat.st_mode).intersects(any_execute),
            has_blocks: stat.st_blocks != 0,
            length: stat.st_size as u64,
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

/// Returns the attributes of an open file. `fstat(2)` is cheaper than the `statx(2)` of the standard
/// library.
#[inline]
pub(crate) fn fstat(file: impl AsFd) -> Result<FileStat> {
    rustix::fs::fstat(file).map(|stat| FileStat::new(&stat))
}

/// Returns the attributes of the file at a path. Follows symbolic links.
#[cfg(feature = "_tls")]
pub(crate) fn stat(path: &Path) -> io::Result<FileStat> {
    Ok(rustix::fs::stat(path).map(|stat| FileStat::new(&stat))?)
}

/// Returns the attributes of the entry at a path. Does not follow a symbolic link at its end.
pub(crate) fn link_stat(path: &Path) -> io::Result<FileStat> {
    Ok(rustix::fs::lstat(path).map(|stat| FileStat::new(&stat))?)
}

/// Reads at a position.
pub(crate) fn read_at(file: &fs::File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    file.read_at(buffer, at)
}

/// Fills the buffer from a position.
pub(crate) fn read_exact_at(file: &fs::File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(buffer, at)
}

/// Listens on a Unix socket at a path.
pub(crate) fn bind_unix_listener(path: &Path, backlog: u16) -> io::Result<OwnedFd> {
    // A socket file that refuses connections was left behind by a process that has ended. A
    // file that is not a socket refuses connections, too, and must not be removed.
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
        && let Err(error) = std::os::unix::net::UnixStream::connect(path)
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        fs::remove_file(path)?;
    }
    let socket = nonblocking_socket(AddressFamily::UNIX, SocketType::STREAM)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, backlog.into())?;
    Ok(socket)
}

/// Returns the path of a listening stream socket that has one.
pub(crate) fn unix_listener_path(socket: &OwnedFd) -> Option<PathBuf> {
    if !is_listening_stream(socket) {
        return None;
    }
    let address = rustix::net::getsockname(socket).ok()?;
    let path = SocketAddrUnix::try_from(address).ok()?;
    Some(OsStr::from_bytes(path.path()?.to_bytes()).into())
}

/// The connections that wait at a listening socket, registered with the current event loop.
pub(crate) struct ListenerQueue(AsyncFd<Arc<OwnedFd>>);

impl ListenerQueue {
    /// # Errors
    /// If the event loop does not accept the socket.
    pub(crate) fn register(socket: Arc<OwnedFd>) -> io::Result<ListenerQueue> {
        #[expect(deprecated, reason = "unsound if the descriptor changes; this one's cannot")]
        AsyncFd::with_interest(socket, Interest::READABLE).map(ListenerQueue)
    }

    pub(crate) fn socket(&self) -> &Arc<OwnedFd> {
        self.0.get_ref()
    }

    /// Repeats a call whenever the socket is ready, until it fails with another error than
    /// `WouldBlock` or succeeds.
    pub(crate) async fn when_ready<T>(
        &self,
        mut call: impl FnMut(&OwnedFd) -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.async_io(Interest::READABLE, |socket| call(socket)).await
    }
}

/// Returns [`WouldBlock`](io::ErrorKind::WouldBlock) if no connection can be accepted.
pub(crate) fn poll_client(socket: &OwnedFd) -> io::Result<()> {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    match rustix::event::poll(&mut fds, Some(&Timespec::default()))? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// The signals that end a process in order: SIGINT, which Ctrl-C sends, and SIGTERM.
#[cfg(feature = "signal")]
pub(crate) struct TerminationSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(feature = "signal")]
impl TerminationSignals {
    /// Registers the signals, which no longer end the process by themselves.
    pub(crate) fn register() -> io::Result<TerminationSignals> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        Ok(TerminationSignals { interrupt, terminate })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        let TerminationSignals { interrupt, terminate } = self;
        poll_fn(|cx| match interrupt.poll_recv(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => terminate.poll_recv(cx).map(|_| ()),
        })
        .await;
    }
}
