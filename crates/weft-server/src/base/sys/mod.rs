//! Calls of the system. For calls that differ between systems, there is one file per system with
//! the same functions in each. With `--cfg weft_portable`, `unix.rs` also serves Linux, so that the
//! tests run over it. No other folder of the crate uses `rustix`, `nix`, `std::os` or `/proc`.

mod files; // attributes, permissions, paths
mod handover_socket; // messages with descriptors to a successor
mod processes; // children, limits, the process itself
#[cfg_attr(all(target_os = "linux", not(weft_portable)), path = "linux.rs")]
#[cfg_attr(any(weft_portable, not(target_os = "linux")), path = "unix.rs")]
mod system;
mod terminal; // the terminal of the standard input
mod users; // users and groups

pub(crate) use std::os::fd::{AsFd, OwnedFd};
pub(crate) use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

pub(crate) use rustix::io::Errno;
pub(crate) use rustix::process::{Pid, Signal};

pub(crate) use self::files::{
    FileAccess, FileId, FileVersion, bytes_of, can_access, create_file_with_mode, file_id,
    has_no_name, is_denied, is_socket, open_for_pid, owner_and_mode, read_exact_at, set_mode,
    set_owner, stream_id, text_of_bytes,
};
pub(crate) use self::handover_socket::HandoverSocket;
pub(crate) use self::processes::{
    DescriptorLimit, cpu_time, descriptor_limit, grow_descriptor_table, host_name, id_of,
    in_new_group, is_closed_by_peer, is_too_large, read_from_pipe, set_descriptor_limit, set_umask,
    signal_group, signal_process,
};
pub(crate) use self::system::{
    FEATURES, ProcessExit, SYSLOG_SOCKET, clear_ambient_capabilities, control_address,
    open_descriptors, peer_pid, resident_bytes, set_child_descriptor_limit, set_defer_accept,
    set_groups_of, set_ids,
};
pub(crate) use self::users::{
    Gid, Group, Uid, User, can_become_root, effective_user, group_name, user_name,
};

pub(crate) use self::terminal::HiddenInput;

/// Features of a system that keys of the configuration require.
pub(crate) struct SystemFeatures {
    /// The kernel can pass a connection on with its first bytes.
    pub(crate) defer_accept: bool,
    /// Several sockets can listen on one address, and the kernel distributes the connections.
    pub(crate) reuse_port: bool,
    /// A process can change its supplementary groups.
    pub(crate) groups: bool,
    /// `weft reload` can reach a process by a socket with the PID in its name.
    pub(crate) control_socket: bool,
    /// The logging daemon of systemd may exist.
    pub(crate) journald: bool,
}
