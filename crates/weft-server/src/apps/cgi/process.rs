//! A process and its children, which are a group of their own: started, ended, reaped.
//!
//! The process is reaped last. Until then nobody else can have its number, which is that of the
//! group too, so that a signal reaches the group and nobody else.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::net::unix::pipe;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::places::Place;

/// How long a group that was asked to end may take for it.
const GRACE: Duration = Duration::from_secs(1);

/// A group that runs. It is ended with the value: at first it is asked to.
pub(super) struct Process(Option<ServerHandle>);

struct ServerHandle {
    group: Group,
    /// A pidfd, which is readable from the end of the process on. It is no pipe, and nothing is
    /// read; but of tokio's types that wait for a descriptor this one takes any.
    end: pipe::Receiver,
}

/// Our ends of the pipes.
pub(super) struct Pipes {
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
}

impl Process {
    /// Starts a process in a group of its own, in a thread of the pool: that waits until the
    /// file is found and loaded.
    pub(super) async fn start(mut command: Command, place: Place) -> io::Result<(Process, Pipes)> {
        let start = move || {
            let child = command.process_group(0).spawn()?;
            Ok(Group { child: Some(child), place: Some(place) })
        };
        let mut group: Group =
            spawn_blocking(start).await.unwrap_or_else(|error| Err(io::Error::other(error)))?;
        let pipes = group.pipes();
        let end = pidfd_open(group.id()?, PidfdFlags::NONBLOCK)?;
        let end = pipe::Receiver::from_owned_fd_unchecked(end)?;
        Ok((Process(Some(ServerHandle { group, end })), pipes))
    }

    /// Whether its end was waited for.
    pub(super) fn has_ended(&self) -> bool {
        self.0.is_none()
    }

    /// Waits for the end of the process. Its children may go on without it.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        let Some(running) = &mut self.0 else {
            return Poll::Ready(Err(io::Error::other("it was waited for before")));
        };
        ready!(running.end.poll_read_ready(cx))?;
        let status = running.group.reap();
        self.0 = None;
        Poll::Ready(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(running) = self.0.take() else { return };
        running.group.signal(Signal::TERM);
        // Without an event loop it is killed at once.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(running.end());
        }
    }
}

impl ServerHandle {
    /// Sees to the end of a group that was asked to end.
    async fn end(mut self) {
        // What has not left by the end of the first process is not asked twice.
        let _ended_or_not = timeout(GRACE, self.end.readable()).await;
        self.group.signal(Signal::KILL);
        if self.end.readable().await.is_ok() {
            let _ = self.group.reap();
        }
    }
}

/// A process that is not reaped yet, and its children. They are killed with the value.
struct Group {
    child: Option<Child>,
    /// It is taken until there is no process any more.
    place: Option<Place>,
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
        Ok(Pid::from_child(child))
    }

    fn signal(&self, signal: Signal) {
        if let Ok(id) = self.id() {
            // A group without living processes is as well.
            let _ = kill_process_group(id, signal);
        }
    }

    /// Reaps a process that has ended. From here on its number is anybody's.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.take().ok_or(io::ErrorKind::NotFound)?.wait();
        self.place = None;
        status
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let (Some(mut child), place) = (self.child.take(), self.place.take()) else { return };
        // There is no event loop that could wait: its end has come, or it was not told.
        let reap = move || {
            let _ = child.wait();
            drop(place);
        };
        // Without that thread it is reaped with the program.
        let _ = std::thread::Builder::new().name("weft-reaper".to_owned()).spawn(reap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::time::Instant;

    use tokio::sync::Semaphore;

    /// How long a test waits for what must come: not to be met, however busy the machine is.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn sleeper(places: &Arc<Semaphore>) -> (Command, Place) {
        let mut command = Command::new("sleep");
        command.arg("1000");
        (command, places.clone().try_acquire_owned().unwrap())
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// The place is free when the process is reaped.
    #[track_caller]
    fn until_free(places: &Semaphore) {
        let start = Instant::now();
        while places.available_permits() == 0 {
            assert!(start.elapsed() < PATIENCE, "it is never reaped");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_process_that_nobody_waits_for_any_more_is_reaped() {
        let places = Arc::new(Semaphore::new(1));
        let runtime = runtime();
        let (command, place) = sleeper(&places);
        runtime.block_on(async {
            let mut start = Box::pin(Process::start(command, place));
            // It has begun, in a thread of the pool, and then its client leaves.
            let begun = poll_fn(|cx| Poll::Ready(start.as_mut().poll(cx).is_pending())).await;
            assert!(begun, "it cannot be done at once");
        });
        until_free(&places);
    }

    #[test]
    fn a_process_goes_with_its_runtime_or_without_one() {
        for is_dropped_inside in [true, false] {
            let places = Arc::new(Semaphore::new(1));
            let runtime = runtime();
            let (command, place) = sleeper(&places);
            let (process, _) = runtime.block_on(Process::start(command, place)).unwrap();
            match is_dropped_inside {
                true => drop(runtime.spawn(async move {
                    let _process = process;
                    std::future::pending::<()>().await
                })),
                false => drop(process),
            }
            drop(runtime);
            until_free(&places);
        }
    }
}
