//! Child processes, and the limits and attributes of this process.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getrlimit, kill_process, kill_process_group, setrlimit,
};
use rustix::time::{ClockId, clock_gettime};

/// Limit on open file descriptors; `None` without a limit.
#[derive(Clone, Copy)]
pub(crate) struct DescriptorLimit {
    pub(crate) soft: Option<u64>,
    pub(crate) hard: Option<u64>,
}

/// Returns the limit on the descriptors of this process.
pub(crate) fn descriptor_limit() -> DescriptorLimit {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    DescriptorLimit { soft: current, hard: maximum }
}

/// Sets the limit on the descriptors of this process.
pub(crate) fn set_descriptor_limit(limit: DescriptorLimit) -> io::Result<()> {
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.soft, maximum: limit.hard })?)
}

/// Opens a descriptor with this number or a higher one, and closes it again.
pub(crate) fn grow_descriptor_table(last: u64) -> io::Result<()> {
    let last = i32::try_from(last).unwrap_or(i32::MAX);
    rustix::io::fcntl_dupfd_cloexec(io::stderr(), last)?;
    Ok(())
}

/// Returns the process ID of a child.
pub(crate) fn id_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Lets the child begin a process group of its own.
pub(crate) fn in_new_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

pub(crate) fn signal_process(process: Pid, signal: Signal) -> io::Result<()> {
    Ok(kill_process(process, signal)?)
}

pub(crate) fn signal_group(group: Pid, signal: Signal) -> io::Result<()> {
    Ok(kill_process_group(group, signal)?)
}

/// Reads from a pipe without the event loop. The pipe is nonblocking.
pub(crate) fn read_from_pipe(pipe: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(pipe, buffer)?)
}

/// Sets the umask of the process.
pub(crate) fn set_umask(mask: u32) {
    rustix::process::umask(Mode::from_raw_mode(mask as rustix::fs::RawMode));
}

/// Returns the name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the time that all threads of this process have run.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Returns true if the peer, which sends nothing, has closed the connection.
pub(crate) fn is_closed_by_peer(stream: &TcpStream) -> bool {
    match rustix::net::recv(stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, length)) => length == 0,
        Err(error) => error != Errno::AGAIN,
    }
}

/// Returns true if a message was too large for its socket.
pub(crate) fn is_too_large(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MSGSIZE)
}
