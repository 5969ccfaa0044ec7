//! Calls that differ between systems, with one file per system and the same functions in each. With
//! `--cfg weft_portable`, `unix.rs` also serves Linux, so that the tests run over it.

#[cfg_attr(all(target_os = "linux", not(weft_portable)), path = "linux.rs")]
#[cfg_attr(any(weft_portable, not(target_os = "linux")), path = "unix.rs")]
mod system;

pub(crate) use self::system::{
    FEATURES, ProcessExit, RECEIVE_RIGHTS, SYSLOG_SOCKET, clear_ambient_capabilities,
    control_address, message_socket_pair, peer_pid, send_flags, set_child_descriptor_limit,
    set_defer_accept, set_groups_of, set_ids,
};

/// Features of a system that keys of the configuration require.
pub(crate) struct SystemFeatures {
    /// The kernel can pass a connection on with its first bytes.
    pub(crate) defer_accept: bool,
    /// Several sockets can listen on one address, and the kernel distributes the connections.
    pub(crate) reuse_port: bool,
    /// A process can change its supplementary groups.
    pub(crate) groups: bool,
    /// A process can pass its sockets to a successor.
    pub(crate) handover: bool,
    /// `weft reload` can reach a process by a socket with the PID in its name.
    pub(crate) control_socket: bool,
    /// The logging daemon of systemd may exist.
    pub(crate) journald: bool,
}
