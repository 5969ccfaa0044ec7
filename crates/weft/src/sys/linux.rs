//! Linux.

use std::fs;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Advice, CWD, FsWord, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::{DupFlags, Errno, ReadWriteFlags, Result, preadv2};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use super::types::{
    BorrowedFd, FileStat, Links, MayBlock, NewConnection, OwnedFd, retry_on_interrupt,
};

/// Flags of every `send(2)`.
pub(super) const SEND: SendFlags = SendFlags::NOSIGNAL;

/// Flags of a `send(2)` that more bytes follow.
pub(super) const SEND_MORE: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::MORE);

/// Creates a nonblocking socket.
pub(super) fn nonblocking_socket(family: AddressFamily, kind: SocketType) -> Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, kind, flags, None)
}

/// The kernel's limit on the buffers of a socket.
#[cfg(feature = "http3")]
pub(crate) const SOCKET_BUFFER_LIMIT: &str = "net.core.rmem_max";

/// Factor of the buffer sizes that the kernel reports: it may count its own overhead.
#[cfg(feature = "http3")]
pub(super) const REPORTED_BUFFER_FACTOR: usize = 2;

/// True if several sockets can have one address, and the kernel distributes connections and
/// datagrams over them.
#[cfg(feature = "http3")]
pub(super) const DISTRIBUTES_PORT: bool = true;

/// Lets several sockets listen on one address. The kernel distributes the connections.
pub(super) fn share_port(socket: &OwnedFd) -> Result<()> {
    sockopt::set_socket_reuseport(socket, true)
}

/// Returns true if further sockets can listen on the address of this socket.
pub(crate) fn shares_port(socket: &OwnedFd) -> bool {
    sockopt::socket_reuseport(socket).unwrap_or(false)
}

/// Returns true if the socket listens.
pub(super) fn is_listening(socket: &OwnedFd) -> bool {
    sockopt::socket_acceptconn(socket) == Ok(true)
}

/// Accepts a connection, which does not block.
#[inline]
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<NewConnection> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, address) = rustix::net::acceptfrom_with(listener, flags)?;
    Ok((socket, address.and_then(|address| SocketAddr::try_from(address).ok())))
}

/// Replaces the descriptor `replaced` by a duplicate of `socket`. No other user can take the
/// descriptor in between.
pub(crate) fn replace_descriptor(socket: &OwnedFd, replaced: &mut OwnedFd) -> Result<()> {
    rustix::io::dup3(socket, replaced, DupFlags::CLOEXEC)
}

/// Resets a TCP connection at once. Fails for Unix sockets.
pub(crate) fn reset(socket: BorrowedFd<'_>) -> Result<()> {
    rustix::net::connect_unspec(socket)
}

/// Sends bytes of a file from the page cache, and advances `at`.
#[inline]
pub(crate) fn send_file(
    socket: BorrowedFd<'_>,
    file: &fs::File,
    at: &mut u64,
    length: usize,
) -> Result<usize> {
    rustix::fs::sendfile(socket, file, Some(at), length)
}

/// Reads bytes that are in the page cache. Returns `None` if the read would wait for the disk, or
/// if the file system does not support `RWF_NOWAIT`.
pub(crate) fn read_nowait(
    file: &fs::File,
    buffer: &mut [u8],
    at: u64,
) -> io::Result<Option<usize>> {
    loop {
        return match preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(Some(read)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
}

/// Reads a range into the page cache without a copy: `null` takes the pages. Returns `None` if the
/// file system does not support that.
pub(crate) fn cache_pages(
    file: &fs::File,
    mut at: u64,
    length: usize,
    null: &fs::File,
) -> Option<io::Result<usize>> {
    let call = || rustix::fs::sendfile(null, file, Some(&mut at), length);
    match retry_on_interrupt(call) {
        Err(Errno::INVAL) => None,
        taken => Some(taken.map_err(io::Error::from)),
    }
}

/// Starts to read a range into the page cache, as a hint.
pub(crate) fn will_need(file: &fs::File, at: u64, length: NonZeroU64) {
    let _ = rustix::fs::fadvise(file, at, Some(length), Advice::WillNeed);
}

/// Types of file systems with generated files, from `statfs(2)`.
const GENERATED_FILE_SYSTEMS: [FsWord; 8] = [
    0x0000_9fa0, // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
];

/// Returns true if the length of a regular file is not known. Other files with contents occupy
/// blocks of a disk, so that most lookups make no further system call.
pub(crate) fn is_generated(file: &fs::File, stat: &FileStat) -> bool {
    let system = || rustix::fs::fstatfs(file);
    !stat.has_blocks && system().is_ok_and(|it| GENERATED_FILE_SYSTEMS.contains(&it.f_type))
}

/// A periodic timer of the kernel, with the type of a pipe, because it is read in the same way.
pub(crate) struct Timer(Receiver);

impl Timer {
    /// # Panics
    /// If the current runtime has no I/O driver.
    pub(crate) fn start(period: Duration) -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let period = Timespec::try_from(period).map_err(io::Error::other)?;
        let spec = Itimerspec { it_interval: period, it_value: period };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
        Receiver::from_owned_fd_unchecked(timer).map(Timer)
    }

    /// Waits for the next expiration. Several expirations since the last one count as one.
    ///
    /// # Errors
    /// If the runtime shuts down.
    pub(crate) async fn expired(&mut self) -> io::Result<()> {
        // Larger than the number of expirations, so that the read clears the readiness.
        let mut expirations = [0; 2 * size_of::<u64>()];
        self.0.read(&mut expirations).await.map(drop)
    }
}

/// Flags of a file that is opened for reading. Without NONBLOCK, opening a pipe would wait for its
/// writer.
pub(super) const READ_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Flags of a directory on a path. `PATH` needs no permission to read it.
pub(super) const DIRECTORY_FLAGS: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens the directory at a path, which may contain links of all kinds. Returns `None` if the
/// caller has to open it by another call.
pub(super) fn open_root(path: &Path, may_block: MayBlock) -> Result<Option<OwnedFd>> {
    let open = |cached| openat2(CWD, path, DIRECTORY_FLAGS, Mode::empty(), cached);
    open_without_waiting(may_block, open)
}

/// Opens a path beneath a directory for reading. Returns `None` if the caller has to walk along the
/// path.
pub(super) fn open_beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    links: Links,
    may_block: MayBlock,
) -> Result<Option<OwnedFd>> {
    let resolve = resolve_flags(links);
    let open = |cached| openat2(root, path, READ_FLAGS, Mode::empty(), resolve | cached);
    open_without_waiting(may_block, open)
}

/// Returns the attributes of the entry at a path beneath a directory. Returns `None` if the caller
/// has to walk along the path.
pub(super) fn stat_beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    links: Links,
) -> Result<Option<Stat>> {
    // PATH does not open the file itself: no pipe waits for its writer, no device starts.
    let (flags, resolve) = (OFlags::PATH | OFlags::CLOEXEC, resolve_flags(links));
    let open = |cached| openat2(root, path, flags, Mode::empty(), resolve | cached);
    open_without_waiting(MayBlock::Yes, open)?.map(rustix::fs::fstat).transpose()
}

fn resolve_flags(links: Links) -> ResolveFlags {
    match links {
        Links::Refused => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Links::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        // The paths of requests contain no `..`.
        Links::Anywhere => ResolveFlags::NO_MAGICLINKS,
    }
}

/// Calls `open` with the flags for an open that waits for the disk only if it may. Returns `None` if
/// the system has no `openat2(2)`: some filters of containers respond `EPERM` to system calls that
/// they do not list.
fn open_without_waiting(
    may_block: MayBlock,
    open: impl Fn(ResolveFlags) -> Result<OwnedFd>,
) -> Result<Option<OwnedFd>> {
    let cached = match may_block {
        MayBlock::No => ResolveFlags::CACHED,
        MayBlock::Yes => ResolveFlags::empty(),
    };
    let mut tries = 0;
    loop {
        match open(cached) {
            Err(Errno::INTR) => {}
            // Kernels before 5.12 do not support CACHED, and a walk may wait.
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) if may_block == MayBlock::No => {
                return Err(Errno::AGAIN);
            }
            Err(Errno::NOSYS | Errno::PERM) => return Ok(None),
            // A rename during the resolution: the kernel could not verify that the path stays
            // beneath the root.
            Err(Errno::AGAIN) if may_block == MayBlock::Yes && tries < 8 => tries += 1,
            opened => return opened.map(Some),
        }
    }
}

/// Returns true if no links in a directory may be followed by their text: the links in `/proc` lead
/// elsewhere, and the mount option `nosymfollow` forbids it.
pub(super) fn refuses_links(directory: BorrowedFd<'_>) -> Result<bool> {
    const PROC: FsWord = 0x9fa0;
    const NO_SYMFOLLOW: FsWord = 0x2000;
    let system = rustix::fs::fstatfs(directory)?;
    Ok(system.f_type == PROC || system.f_flags & NO_SYMFOLLOW != 0)
}
