//! Calls that differ between systems, with one file per system and the same functions in each. With
//! `--cfg weft_portable`, `unix.rs` also serves Linux, so that the tests run over it.

#[cfg_attr(all(target_os = "linux", not(weft_portable)), path = "linux.rs")]
#[cfg_attr(any(weft_portable, not(target_os = "linux")), path = "unix.rs")]
mod system;

pub(crate) use self::system::{open_pipe, read_nowait, splice};
