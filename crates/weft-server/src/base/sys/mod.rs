//! Calls that differ between systems, with one file per system and the same functions in each. With
//! `--cfg weft_portable`, `unix.rs` also serves Linux, so that the tests run over it.

#[cfg_attr(all(target_os = "linux", not(weft_portable)), path = "linux.rs")]
#[cfg_attr(any(weft_portable, not(target_os = "linux")), path = "unix.rs")]
mod system;

pub(crate) use self::system::{
    HAS_DEFER_ACCEPT, ProcessExit, RECEIVE_RIGHTS, clear_ambient_capabilities, control_address,
    message_socket_pair, peer_pid, send_flags, set_child_descriptor_limit, set_defer_accept,
    set_ids,
};
