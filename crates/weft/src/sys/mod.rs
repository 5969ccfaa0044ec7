//! Calls of the system, with one file per system and the same functions in each.
//!
//! No other folder of the crate uses `rustix` or `std::os`, or tests for the system. `unix.rs`
//! serves macOS and FreeBSD. With `--cfg weft_portable` it also serves Linux, so that the tests run
//! over it.

#[cfg(any(weft_portable, not(target_os = "linux")))]
mod absent;
#[cfg(all(unix, feature = "files"))]
mod beneath;
#[cfg(all(unix, feature = "files"))]
mod folders;
#[cfg(unix)]
mod posix;
#[cfg(all(unix, feature = "cache"))]
mod private_files;
#[cfg(feature = "http3")]
#[cfg_attr(not(target_os = "linux"), path = "process_channel_absent.rs")]
mod process_channel;
mod sockets;
#[cfg_attr(all(target_os = "linux", not(weft_portable)), path = "linux.rs")]
#[cfg_attr(all(unix, any(weft_portable, not(target_os = "linux"))), path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod system;
mod types;

#[cfg(any(weft_portable, not(target_os = "linux")))]
pub(crate) use self::absent::{Timer, cache_pages, read_nowait, will_need};
#[cfg(all(unix, feature = "files"))]
pub(crate) use self::folders::{
    FolderEntries, open_beneath, open_for_reading, open_root, path_of_bytes,
};
#[cfg(all(unix, feature = "files"))]
pub use self::folders::{open_directory, stat_beneath};
#[cfg(all(unix, feature = "signal"))]
pub(crate) use self::posix::TerminationSignals;
#[cfg(all(unix, feature = "_tls"))]
pub(crate) use self::posix::stat;
#[cfg(unix)]
pub(crate) use self::posix::{
    ListenerQueue, bind_unix_listener, fstat, link_stat, poll_client, read_at, read_exact_at,
    unix_listener_path,
};
#[cfg(all(unix, feature = "cache"))]
pub(crate) use self::private_files::{
    create_private_file, create_private_folder, is_writable_by_others, open_lock_file,
    open_private_file,
};
#[cfg(feature = "http3")]
pub(crate) use self::process_channel::ProcessChannel;
pub(crate) use self::sockets::{
    Direction, datagram_address, is_ipv6_only, listening_address, local_address, prepare_listener,
    receive, receive_uninit, send, send_slices, set_keepalive, shutdown, tcp_listener,
};
#[cfg(feature = "http3")]
pub(crate) use self::sockets::{
    prepare_datagrams, receive_buffer_bytes, shared_udp_socket, udp_socket_count,
};
#[cfg(feature = "http3")]
pub(crate) use self::system::SOCKET_BUFFER_LIMIT;
#[cfg(all(windows, feature = "signal"))]
pub(crate) use self::system::TerminationSignals;
#[cfg(feature = "files")]
pub(crate) use self::system::is_generated;
#[cfg(all(windows, feature = "_tls"))]
pub(crate) use self::system::stat;
#[cfg(windows)]
pub(crate) use self::system::{
    ListenerQueue, bind_unix_listener, fstat, link_stat, poll_client, read_at, read_exact_at,
    unix_listener_path,
};
#[cfg(all(target_os = "linux", not(weft_portable)))]
pub(crate) use self::system::{Timer, cache_pages, read_nowait, will_need};
pub(crate) use self::system::{accept, replace_descriptor, reset, send_file, shares_port};
#[cfg(all(windows, feature = "cache"))]
pub(crate) use self::system::{
    create_private_file, create_private_folder, is_writable_by_others, open_lock_file,
    open_private_file,
};
#[cfg(feature = "files")]
pub(crate) use self::types::MayBlock;
#[cfg(unix)]
pub use self::types::UnixListener;
pub use self::types::{AsFd, BorrowedFd, EntryKind, FileStat, Links, OwnedFd};
pub(crate) use self::types::{Errno, NewConnection, retry_on_interrupt};
