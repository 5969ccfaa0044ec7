//! Start, termination and reaping of a process and its children, which form a process group.
//!
//! The process is reaped last. Until then the kernel cannot reuse its process ID, which is also the
//! group ID, so that a signal reaches this group only.

use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;
use weft::client_limit::ClientPermit;

use crate::base::sys::{
    Pid, ProcessExit, Signal, clear_ambient_capabilities, id_of, in_new_group, signal_group,
};
use crate::base::{descriptors, interpreter};

/// Time between SIGTERM and SIGKILL.
const KILL_DELAY: Duration = Duration::from_secs(1);

/// Running process group. Terminated when dropped: with SIGTERM, then with SIGKILL.
pub(crate) struct Process(Option<RunningProcess>);

struct RunningProcess {
    group: Group,
    exit: ProcessExit,
}

/// The server's ends of the pipes.
pub(crate) struct Pipes {
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
}

impl Process {
    /// Starts a process in a new process group and without ambient capabilities, on the blocking
    /// pool: the call blocks until the kernel has loaded the file. It has `permit` until it is
    /// reaped.
    pub(crate) async fn start(
        mut command: Command,
        permit: Option<ClientPermit>,
    ) -> io::Result<(Process, Pipes)> {
        let start = move || {
            // Of this thread only, from which the process inherits them. The server may need them
            // for a successor that binds ports.
            clear_ambient_capabilities()?;
            let child = in_new_group(&mut command).spawn();
            let child = child
                .map_err(|error| interpreter::explain(Path::new(command.get_program()), error))?;
            descriptors::restore_limit(&child);
            Ok(Group { child: Some(child), permit })
        };
        let mut group: Group =
            spawn_blocking(start).await.unwrap_or_else(|error| Err(io::Error::other(error)))?;
        let pipes = group.pipes();
        let exit = ProcessExit::watch(group.id()?)?;
        Ok((Process(Some(RunningProcess { group, exit })), pipes))
    }

    /// Returns true if the process has been reaped.
    pub(crate) fn is_reaped(&self) -> bool {
        self.0.is_none()
    }

    /// Waits for the process to exit and reaps it. Its children may keep running.
    pub(crate) fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        let Some(running) = &mut self.0 else {
            return Poll::Ready(Err(io::Error::other("the process was reaped before")));
        };
        ready!(running.exit.poll_exited(cx))?;
        let status = running.group.reap();
        self.0 = None;
        Poll::Ready(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(running) = self.0.take() else { return };
        running.group.signal(Signal::TERM);
        // Without an event loop, dropping `running` kills the group immediately.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(running.kill_after_delay());
        }
    }
}

impl RunningProcess {
    /// Waits for the process to exit after SIGTERM, then kills the group and reaps the process.
    async fn kill_after_delay(mut self) {
        // Children that are still running when the first process exits are killed without delay.
        let _exited_or_not = timeout(KILL_DELAY, poll_fn(|cx| self.exit.poll_exited(cx))).await;
        self.group.signal(Signal::KILL);
        if poll_fn(|cx| self.exit.poll_exited(cx)).await.is_ok() {
            let _ = self.group.reap();
        }
    }
}

/// A process that has not been reaped, and its children. Killed when dropped.
struct Group {
    child: Option<Child>,
    /// Permit of a limit, held until the process has been reaped.
    permit: Option<ClientPermit>,
}

impl Group {
    fn pipes(&mut self) -> Pipes {
        match &mut self.child {
            Some(Child { stdin, stdout, stderr, .. }) => {
                Pipes { stdin: stdin.take(), stdout: stdout.take(), stderr: stderr.take() }
            }
            None => Pipes { stdin: None, stdout: None, stderr: None },
        }
    }

    fn id(&self) -> io::Result<Pid> {
        let child = self.child.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(id_of(child))
    }

    fn signal(&self, signal: Signal) {
        if let Ok(id) = self.id() {
            // Fails if no process of the group is alive, which is fine.
            let _ = signal_group(id, signal);
        }
    }

    /// Reaps a process that has exited. The kernel may reuse its process ID from now on.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.take().ok_or(io::ErrorKind::NotFound)?.wait();
        self.permit = None;
        status
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let (Some(mut child), permit) = (self.child.take(), self.permit.take()) else { return };
        // No event loop is available to wait: it has shut down, or the start was canceled.
        let reap = move || {
            let _ = child.wait();
            drop(permit);
        };
        // If the thread cannot be started, the process is reaped when the server exits.
        let _ = std::thread::Builder::new().name("weft-reaper".to_owned()).spawn(reap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    use weft::client_limit::{ClientLimit, ClientLimitSettings};

    /// Time limit for events that must happen; generous, because the machine may be busy.
    const TEST_TIMEOUT: Duration = Duration::from_secs(30);

    fn one_process() -> ClientLimit {
        ClientLimit::new(ClientLimitSettings::new(1))
    }

    fn sleeper(limit: &ClientLimit) -> (Command, ClientPermit) {
        let mut command = Command::new("sleep");
        command.arg("1000");
        (command, limit.try_acquire(None).unwrap())
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Waits for the permit to be released, which happens when the process is reaped.
    #[track_caller]
    fn wait_until_released(limit: &ClientLimit) {
        let start = Instant::now();
        while limit.in_use() > 0 {
            assert!(start.elapsed() < TEST_TIMEOUT, "the process is never reaped");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn reaps_process_when_its_start_is_canceled() {
        let limit = one_process();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(1).build().unwrap();
        let (command, permit) = sleeper(&limit);
        runtime.block_on(async {
            // The only thread of the blocking pool is busy until the future has been dropped.
            // Otherwise, the process might be started before the first poll ends.
            let (release, released) = std::sync::mpsc::channel::<()>();
            let busy = spawn_blocking(move || released.recv());
            let mut start = Box::pin(Process::start(command, Some(permit)));
            let is_pending = poll_fn(|cx| Poll::Ready(start.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending, "the start waits for a thread");
            drop(start);
            drop(release);
            assert!(busy.await.unwrap().is_err(), "nothing is sent");
        });
        wait_until_released(&limit);
    }

    #[test]
    fn reaps_process_on_drop_inside_and_outside_a_runtime() {
        for is_dropped_inside in [true, false] {
            let limit = one_process();
            let runtime = runtime();
            let (command, permit) = sleeper(&limit);
            let (process, _) = runtime.block_on(Process::start(command, Some(permit))).unwrap();
            match is_dropped_inside {
                true => drop(runtime.spawn(async move {
                    let _process = process;
                    std::future::pending::<()>().await
                })),
                false => drop(process),
            }
            drop(runtime);
            wait_until_released(&limit);
        }
    }
}
