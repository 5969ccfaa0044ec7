//! Calls of the system. For calls that differ between systems, there is one file per system with
//! the same functions in each. With `--cfg weft_portable`, `unix.rs` also serves Linux, so that the
//! tests run over it. No other folder of the crate uses `rustix` or `std::os`.

#[cfg_attr(all(target_os = "linux", not(weft_portable)), path = "linux.rs")]
#[cfg_attr(any(weft_portable, not(target_os = "linux")), path = "unix.rs")]
mod system;
mod posix;

pub(crate) use self::posix::{
    OwnedFd, bytes_of, is_exhaustion, is_splice_refusal, read_exact_at, write_all_at,
};
pub(crate) use self::system::{open_pipe, read_nowait, splice};
