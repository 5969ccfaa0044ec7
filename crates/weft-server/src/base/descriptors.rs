//! The limit on open file descriptors.

use std::process::{Child, Command};
use std::sync::OnceLock;

use crate::base::sys::{
    DescriptorLimit, descriptor_limit, grow_descriptor_table, set_child_descriptor_limit,
    set_descriptor_limit,
};

/// Soft limit that the process was started with. Child processes get it back, because programs that
/// use `select(2)` fail with a higher one.
static INHERITED: OnceLock<Option<u64>> = OnceLock::new();

/// Environment variable by which a process passes the inherited soft limit to its successor.
const INHERITED_VARIABLE: &str = "WEFT_INHERITED_DESCRIPTOR_LIMIT";

/// Raises the soft limit to the hard limit.
pub(crate) fn raise_limit() {
    let limit = descriptor_limit();
    let passed = std::env::var(INHERITED_VARIABLE).ok().and_then(|text| text.parse().ok());
    INHERITED.get_or_init(|| passed.or(limit.soft));
    // A failure leaves the limit as it is, and the check of the plan reports it.
    let _ = set_descriptor_limit(DescriptorLimit { soft: limit.hard, ..limit });
}

/// Grows the process's descriptor table in the kernel while there is only one thread. If the table
/// of a multithreaded process grows, the calling thread waits for an RCU grace period on all
/// processors, about 10 ms at every power of two.
pub(crate) fn grow_table() {
    const MAX_DESCRIPTORS: u64 = 16 << 10;
    let limit = descriptor_limit().soft.unwrap_or(MAX_DESCRIPTORS);
    let last = limit.min(MAX_DESCRIPTORS).saturating_sub(1);
    // Opens a descriptor with the highest number and closes it again. Ignored: this is only an
    // optimization.
    let _ = grow_descriptor_table(last);
}

/// Sets the soft limit of a child process to the inherited one. Only the parent can do so without
/// unsafe code, so that the child may run for a moment with the higher limit.
pub(crate) fn restore_limit(child: &Child) {
    let inherited = INHERITED.get().copied().flatten();
    if inherited != descriptor_limit().soft {
        set_child_descriptor_limit(child, inherited);
    }
}

/// Passes the inherited limit to a successor, which is started with the raised one.
pub(crate) fn pass_inherited_limit(command: &mut Command) -> &mut Command {
    match INHERITED.get().copied().flatten() {
        Some(limit) => command.env(INHERITED_VARIABLE, limit.to_string()),
        None => command,
    }
}
