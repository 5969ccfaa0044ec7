//! Unix systems other than Linux, by calls that all of them have.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{OFlags, Stat};
use rustix::io::{FdFlags, Result, fcntl_setfd, ioctl_fionbio};
use rustix::net::{AddressFamily, SendFlags, SocketType, sockopt};

use super::types::{BorrowedFd, FileStat, Links, MayBlock, NewConnection, OwnedFd};

/// Flags of every `send(2)`. The standard library of Rust ignores SIGPIPE before `main`.
pub(super) const SEND: SendFlags = SendFlags::empty();

/// Flags of a `send(2)` that more bytes follow: only Linux can hold bytes back for one call.
pub(super) const SEND_MORE: SendFlags = SEND;

/// Creates a nonblocking socket. Another thread that starts a process between the two calls
/// passes the socket to that process.
pub(super) fn nonblocking_socket(family: AddressFamily, kind: SocketType) -> Result<OwnedFd> {
    let socket = rustix::net::socket(family, kind, None)?;
    set_flags(&socket)?;
    Ok(socket)
}

fn set_flags(socket: &OwnedFd) -> Result<()> {
    fcntl_setfd(socket, FdFlags::CLOEXEC)?;
    ioctl_fionbio(socket, true)
}

/// The kernel's limit on the buffers of a socket.
#[cfg(feature = "http3")]
pub(crate) const SOCKET_BUFFER_LIMIT: &str =
    if cfg!(target_os = "linux") { "net.core.rmem_max" } else { "kern.ipc.maxsockbuf" };

/// Factor of the buffer sizes that the kernel reports: it may count its own overhead.
#[cfg(feature = "http3")]
pub(super) const REPORTED_BUFFER_FACTOR: usize = if cfg!(target_os = "linux") { 2 } else { 1 };

/// True if several sockets can have one address, and the kernel distributes connections and
/// datagrams over them.
#[cfg(feature = "http3")]
pub(super) const DISTRIBUTES_PORT: bool = cfg!(any(target_os = "freebsd", target_os = "linux"));

/// Lets several sockets listen on one address. Only FreeBSD distributes the connections; macOS
/// gives all of them to one of the sockets, so that workers share a socket there.
pub(super) fn share_port(socket: &OwnedFd) -> Result<()> {
    #[cfg(target_os = "freebsd")]
    return sockopt::set_socket_reuseport_lb(socket, true);
    #[cfg(target_os = "linux")]
    return sockopt::set_socket_reuseport(socket, true);
    #[cfg(not(any(target_os = "freebsd", target_os = "linux")))]
    {
        let _ = socket;
        Err(rustix::io::Errno::OPNOTSUPP)
    }
}

/// Returns true if further sockets can listen on the address of this socket.
pub(crate) fn shares_port(socket: &OwnedFd) -> bool {
    #[cfg(target_os = "freebsd")]
    return sockopt::socket_reuseport_lb(socket).unwrap_or(false);
    #[cfg(target_os = "linux")]
    return sockopt::socket_reuseport(socket).unwrap_or(false);
    #[cfg(not(any(target_os = "freebsd", target_os = "linux")))]
    {
        let _ = socket;
        false
    }
}

/// Returns true if the socket listens. macOS does not report it; there a socket without a peer
/// counts as a listening socket, and the first attempt to accept reports the error.
pub(super) fn is_listening(socket: &OwnedFd) -> bool {
    #[cfg(not(target_vendor = "apple"))]
    return sockopt::socket_acceptconn(socket) == Ok(true);
    #[cfg(target_vendor = "apple")]
    return rustix::net::getpeername(socket).is_err();
}

/// Accepts a connection, which does not block.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<NewConnection> {
    let (socket, address) = rustix::net::acceptfrom(listener)?;
    set_flags(&socket)?;
    // Unlike on Linux, options of the listener may not be inherited.
    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
    if address.is_some() {
        let _ = sockopt::set_tcp_nodelay(&socket, true);
    }
    Ok((socket, address))
}

/// Replaces the descriptor `replaced` by a duplicate of `socket`. No other user can take the
/// descriptor in between.
pub(crate) fn replace_descriptor(socket: &OwnedFd, replaced: &mut OwnedFd) -> Result<()> {
    rustix::io::dup2(socket, replaced)?;
    fcntl_setfd(replaced, FdFlags::CLOEXEC)
}

/// Resets a TCP connection when its last user closes it.
pub(crate) fn reset(socket: BorrowedFd<'_>) -> Result<()> {
    // Unix sockets have no reset.
    sockopt::tcp_nodelay(socket)?;
    sockopt::set_socket_linger(socket, Some(Duration::ZERO))
}

/// Maximum number of bytes of a file that one call copies.
const COPY_BYTES: usize = 64 << 10;

/// Sends bytes of a file, and advances `at`. The bytes are copied through the process if the kernel
/// does not send them from the file.
pub(crate) fn send_file(
    socket: BorrowedFd<'_>,
    file: &fs::File,
    at: &mut u64,
    length: usize,
) -> Result<usize> {
    if let Some(sent) = send_within_kernel(socket, file, *at, length) {
        let sent = sent?;
        *at += sent as u64;
        return Ok(sent);
    }
    let mut piece = vec![0; length.min(COPY_BYTES)];
    let read = rustix::io::pread(file, &mut piece, *at)?;
    if read == 0 {
        return Ok(0);
    }
    let sent = rustix::net::send(socket, &piece[..read], SEND)?;
    *at += sent as u64;
    Ok(sent)
}

/// Sends bytes of a file by the `sendfile` of macOS and FreeBSD. `None` if the kernel cannot do so
/// for this file and this socket, such as a Unix socket.
#[cfg(any(target_os = "freebsd", target_vendor = "apple"))]
fn send_within_kernel(
    socket: BorrowedFd<'_>,
    file: &fs::File,
    at: u64,
    length: usize,
) -> Option<Result<usize>> {
    use nix::errno::Errno;
    use nix::sys::sendfile::sendfile;
    /// Some of these are equal on some systems.
    const UNSUPPORTED: [Errno; 4] =
        [Errno::EINVAL, Errno::ENOTSUP, Errno::EOPNOTSUPP, Errno::ENOTSOCK];
    // A length of 0 would send the whole file.
    let (at, length) = (i64::try_from(at).ok()?, length.max(1));
    #[cfg(target_os = "freebsd")]
    let (result, sent) = {
        let flags = nix::sys::sendfile::SfFlags::empty();
        sendfile(file, socket, at, Some(length), None, None, flags, 0)
    };
    #[cfg(target_vendor = "apple")]
    let (result, sent) = sendfile(file, socket, at, i64::try_from(length).ok(), None, None);
    match (result, usize::try_from(sent)) {
        // An error after the first bytes is reported by the next call.
        (_, Ok(sent @ 1..)) => Some(Ok(sent)),
        (Ok(()), _) => Some(Ok(0)),
        (Err(error), _) if UNSUPPORTED.contains(&error) => None,
        (Err(error), _) => Some(Err(rustix::io::Errno::from_raw_os_error(error as i32))),
    }
}

/// Returns `None`: other systems have no such call, and on Linux this file has the calls that all
/// systems have.
#[cfg(not(any(target_os = "freebsd", target_vendor = "apple")))]
fn send_within_kernel(
    _socket: BorrowedFd<'_>,
    _file: &fs::File,
    _at: u64,
    _length: usize,
) -> Option<Result<usize>> {
    None
}

/// Returns false: the types of file systems are numbers of Linux.
pub(crate) fn is_generated(_file: &fs::File, _stat: &FileStat) -> bool {
    false
}

/// Flags of a file that is opened for reading. Without NONBLOCK, opening a pipe would wait for its
/// writer.
pub(super) const READ_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Flags of a directory on a path.
pub(super) const DIRECTORY_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Returns `None`, so that the caller opens the directory by the call that all systems have.
pub(super) fn open_root(_path: &Path, may_block: MayBlock) -> Result<Option<OwnedFd>> {
    unless_waiting(may_block)
}

/// Returns `None`, so that the caller walks along the path.
pub(super) fn open_beneath(
    _root: BorrowedFd<'_>,
    _path: &[u8],
    _links: Links,
    may_block: MayBlock,
) -> Result<Option<OwnedFd>> {
    unless_waiting(may_block)
}

/// Returns `None`, so that the caller walks along the path.
pub(super) fn stat_beneath(
    _root: BorrowedFd<'_>,
    _path: &[u8],
    _links: Links,
) -> Result<Option<Stat>> {
    Ok(None)
}

/// Fails if the caller must not wait: no call opens only paths that are in the cache of the kernel.
fn unless_waiting<T>(may_block: MayBlock) -> Result<Option<T>> {
    match may_block {
        MayBlock::No => Err(rustix::io::Errno::AGAIN),
        MayBlock::Yes => Ok(None),
    }
}

/// Returns true if no links in a directory may be followed by their text: the links in `/proc` lead
/// elsewhere, and the mount option `nosymfollow` forbids it.
#[cfg(target_os = "linux")]
pub(super) fn refuses_links(directory: BorrowedFd<'_>) -> Result<bool> {
    const PROC: rustix::fs::FsWord = 0x9fa0;
    const NO_SYMFOLLOW: rustix::fs::FsWord = 0x2000;
    let system = rustix::fs::fstatfs(directory)?;
    Ok(system.f_type == PROC || system.f_flags & NO_SYMFOLLOW != 0)
}

/// Returns false: only the `/proc` of Linux has links that lead elsewhere than their text.
#[cfg(not(target_os = "linux"))]
pub(super) fn refuses_links(_directory: BorrowedFd<'_>) -> Result<bool> {
    Ok(false)
}
