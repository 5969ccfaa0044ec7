//! Windows, for the library without its default features.

use std::fs;
#[cfg(feature = "signal")]
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::windows::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "signal")]
use std::task::Poll;
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SendFlags, SocketType, sockopt};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::types::{BorrowedFd, EntryKind, FileStat, NewConnection, OwnedFd, unsupported};

/// Flags of every `send`.
pub(super) const SEND: SendFlags = SendFlags::empty();

/// Flags of a `send` that more bytes follow: the system cannot hold bytes back for one call.
pub(super) const SEND_MORE: SendFlags = SEND;

/// Creates a nonblocking socket.
pub(super) fn nonblocking_socket(
    family: AddressFamily,
    kind: SocketType,
) -> rustix::io::Result<OwnedFd> {
    rustix::net::wsa_startup()?;
    let socket = rustix::net::socket(family, kind, None)?;
    ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// The kernel's limit on the buffers of a socket.
#[cfg(feature = "http3")]
pub(crate) const SOCKET_BUFFER_LIMIT: &str = "the limit of the system";

/// Factor of the buffer sizes that the kernel reports: it may count its own overhead.
#[cfg(feature = "http3")]
pub(super) const REPORTED_BUFFER_FACTOR: usize = 1;

/// True if several sockets can have one address, and the kernel distributes connections and
/// datagrams over them.
#[cfg(feature = "http3")]
pub(super) const DISTRIBUTES_PORT: bool = false;

/// Fails: the system does not distribute connections to several sockets.
pub(super) fn share_port(_socket: &OwnedFd) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}

/// Returns false: no further sockets can listen on the address of a socket.
pub(crate) fn shares_port(_socket: &OwnedFd) -> bool {
    false
}

/// Returns true if the socket listens.
pub(super) fn is_listening(socket: &OwnedFd) -> bool {
    sockopt::socket_acceptconn(socket) == Ok(true)
}

/// Accepts a connection, which does not block.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<NewConnection> {
    let (socket, address) = rustix::net::acceptfrom(listener)?;
    ioctl_fionbio(&socket, true)?;
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    Ok((socket, address.and_then(|address| SocketAddr::try_from(address).ok())))
}

/// Replaces a socket by a duplicate of another one.
pub(crate) fn replace_descriptor(
    socket: &OwnedFd,
    replaced: &mut OwnedFd,
) -> rustix::io::Result<()> {
    *replaced = socket.try_clone().map_err(|_| Errno::MFILE)?;
    Ok(())
}

/// Resets a connection when its last user closes it.
pub(crate) fn reset(socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
    sockopt::set_socket_linger(socket, Some(Duration::ZERO))
}

/// Maximum number of bytes of a file that one call copies.
const COPY_BYTES: usize = 64 << 10;

/// Sends bytes of a file, and advances `at`. The bytes are copied through the process.
pub(crate) fn send_file(
    socket: BorrowedFd<'_>,
    file: &fs::File,
    at: &mut u64,
    length: usize,
) -> rustix::io::Result<usize> {
    let mut piece = vec![0; length.min(COPY_BYTES)];
    let read = file.seek_read(&mut piece, *at).map_err(|_| Errno::INVAL)?;
    if read == 0 {
        return Ok(0);
    }
    let sent = rustix::net::send(socket, &piece[..read], SEND)?;
    *at += sent as u64;
    Ok(sent)
}

/// Returns the attributes of an open file.
pub(crate) fn fstat(file: &fs::File) -> rustix::io::Result<FileStat> {
    file.metadata().map(|metadata| to_stat(&metadata)).map_err(|_| Errno::BADF)
}

/// Returns the attributes of the file at a path. Follows symbolic links.
#[cfg(feature = "_tls")]
pub(crate) fn stat(path: &Path) -> io::Result<FileStat> {
    fs::metadata(path).map(|metadata| to_stat(&metadata))
}

/// Returns the attributes of the entry at a path. Does not follow a symbolic link at its end.
pub(crate) fn link_stat(path: &Path) -> io::Result<FileStat> {
    fs::symlink_metadata(path).map(|metadata| to_stat(&metadata))
}

/// Fails: Weft has no Unix sockets on Windows.
pub(crate) fn bind_unix_listener(_path: &Path, _backlog: u16) -> io::Result<OwnedFd> {
    Err(unsupported())
}

/// Returns `None`: Weft has no Unix sockets on Windows.
pub(crate) fn unix_listener_path(_socket: &OwnedFd) -> Option<PathBuf> {
    None
}

/// The standard library gives no number of the file and no time of the last change of the
/// metadata.
fn to_stat(metadata: &fs::Metadata) -> FileStat {
    /// Seconds from 1601, where the times of the system begin, to 1970.
    const SECONDS_TO_1970: i64 = 11_644_473_600;
    const UNITS_PER_SECOND: u64 = 10_000_000;
    let units = metadata.last_write_time();
    let seconds = (units / UNITS_PER_SECOND) as i64 - SECONDS_TO_1970;
    let modified = (seconds, (units % UNITS_PER_SECOND * 100) as i64);
    FileStat {
        kind: if metadata.is_file() { EntryKind::File } else { EntryKind::Other },
        is_executable: false,
        has_blocks: true,
        length: metadata.file_size(),
        device: 0,
        inode: 0,
        modified,
        changed: modified,
    }
}

/// Reads at a position.
pub(crate) fn read_at(file: &fs::File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    file.seek_read(buffer, at)
}

/// Fills the buffer from a position.
pub(crate) fn read_exact_at(file: &fs::File, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.seek_read(buffer, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                at += read as u64;
                buffer = &mut buffer[read..];
            }
        }
    }
    Ok(())
}

/// The connections that wait at a listening socket, registered with the current event loop. The
/// type of a connection serves for the readiness of any stream socket.
pub(crate) struct ListenerQueue {
    socket: Arc<OwnedFd>,
    readiness: TcpStream,
}

impl ListenerQueue {
    /// # Errors
    /// If the event loop does not accept the socket.
    pub(crate) fn register(socket: Arc<OwnedFd>) -> io::Result<ListenerQueue> {
        let readiness = TcpStream::from_std(socket.try_clone()?.into())?;
        Ok(ListenerQueue { socket, readiness })
    }

    pub(crate) fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Repeats a call whenever the socket is ready, until it fails with another error than
    /// `WouldBlock` or succeeds.
    pub(crate) async fn when_ready<T>(
        &self,
        mut call: impl FnMut(&OwnedFd) -> io::Result<T>,
    ) -> io::Result<T> {
        self.readiness.async_io(Interest::READABLE, || call(&self.socket)).await
    }
}

/// Returns [`WouldBlock`](io::ErrorKind::WouldBlock) if no connection can be accepted.
pub(crate) fn poll_client(socket: &OwnedFd) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags};
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    match rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default()))? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// Creates a folder, and those above it, unless they exist. It inherits its permissions.
#[cfg(feature = "cache")]
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Returns false: permissions are lists, which are not examined.
#[cfg(feature = "cache")]
pub(crate) fn is_writable_by_others(_path: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Creates a file for writing and reading. It must not exist.
#[cfg(feature = "cache")]
pub(crate) fn create_private_file(path: &Path) -> io::Result<fs::File> {
    fs::File::options().read(true).write(true).create_new(true).open(path)
}

/// Opens a file.
#[cfg(feature = "cache")]
pub(crate) fn open_private_file(path: &Path, is_writable: bool) -> io::Result<fs::File> {
    fs::File::options().read(true).write(is_writable).open(path)
}

/// Opens a file whose lock shows that a process uses its folder.
#[cfg(feature = "cache")]
pub(crate) fn open_lock_file(path: &Path) -> io::Result<fs::File> {
    fs::File::options().read(true).write(true).create(true).truncate(false).open(path)
}

/// The events of the console that end a process in order: Ctrl-C, and Ctrl-Break, which a program
/// can send to a group of processes.
#[cfg(feature = "signal")]
pub(crate) struct TerminationSignals {
    interrupt: tokio::signal::windows::CtrlC,
    terminate: tokio::signal::windows::CtrlBreak,
}

#[cfg(feature = "signal")]
impl TerminationSignals {
    /// Registers the events, which no longer end the process by themselves.
    pub(crate) fn register() -> io::Result<TerminationSignals> {
        let interrupt = tokio::signal::windows::ctrl_c()?;
        let terminate = tokio::signal::windows::ctrl_break()?;
        Ok(TerminationSignals { interrupt, terminate })
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) {
        let TerminationSignals { interrupt, terminate } = self;
        poll_fn(|cx| match interrupt.poll_recv(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => terminate.poll_recv(cx).map(|_| ()),
        })
        .await;
    }
}
