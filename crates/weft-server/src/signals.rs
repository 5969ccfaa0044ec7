//! Control events of the running process: signals, and the result of an upgrade.

use std::future::pending;
use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::handover::{Successor, UpgradeResult};

/// The signal handlers of the process.
pub(crate) struct Signals {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    hangup: Option<Signal>,
    reopen: Signal,
    upgrade: Signal,
}

/// An event that controls the process.
pub(crate) enum ControlEvent {
    /// Stop, and wait up to `drain_timeout` for requests in flight (SIGINT, that is Ctrl-C, and
    /// SIGTERM).
    Stop,
    /// Stop, and wait for requests in flight without a limit (SIGQUIT).
    Quit,
    /// Reload the configuration (SIGHUP).
    Reload,
    /// Reopen the log files (SIGUSR1).
    ReopenLogs,
    /// Start the program from its current file, and pass the sockets to it (SIGUSR2).
    Upgrade,
    /// An upgrade has completed or failed.
    UpgradeFinished(UpgradeResult),
}

impl Signals {
    /// Installs the signal handlers. `hangup` is true if there is something to reload. Otherwise
    /// SIGHUP keeps its default action and terminates the process, for example when its terminal is
    /// closed.
    pub(crate) fn install(hangup: bool) -> io::Result<Signals> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let _entered = runtime.enter();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let quit = signal(SignalKind::quit())?;
        let hangup = hangup.then(|| signal(SignalKind::hangup())).transpose()?;
        let reopen = signal(SignalKind::user_defined1())?;
        let upgrade = signal(SignalKind::user_defined2())?;
        drop(_entered);
        Ok(Signals { runtime, interrupt, terminate, quit, hangup, reopen, upgrade })
    }

    /// Waits for the next event.
    pub(crate) fn next(&mut self, successor: &mut Option<Successor>) -> ControlEvent {
        self.runtime.block_on(async {
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => hangup.recv().await,
                    None => pending().await,
                }
            };
            let upgrade_result = async {
                match successor {
                    Some(successor) => successor.result().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                _ = self.interrupt.recv() => ControlEvent::Stop,
                _ = self.terminate.recv() => ControlEvent::Stop,
                _ = self.quit.recv() => ControlEvent::Quit,
                _ = hangup => ControlEvent::Reload,
                _ = self.reopen.recv() => ControlEvent::ReopenLogs,
                _ = self.upgrade.recv() => ControlEvent::Upgrade,
                result = upgrade_result => ControlEvent::UpgradeFinished(result),
            }
        })
    }

    /// Waits for a stop signal. Calls `reopen` for each request to reopen the log files.
    pub(crate) fn wait_for_stop(&mut self, reopen: impl Fn()) {
        loop {
            match self.next(&mut None) {
                ControlEvent::Stop => return,
                ControlEvent::ReopenLogs => reopen(),
                ControlEvent::Quit
                | ControlEvent::Reload
                | ControlEvent::Upgrade
                | ControlEvent::UpgradeFinished(_) => {}
            }
        }
    }
}
