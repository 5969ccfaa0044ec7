//! Control events of the running process: signals, and the result of an upgrade.

use std::future::pending;
use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config_change::{ChangeReceiver, ChangeRequest};
use crate::sockets::handover::{Successor, UpgradeResult};

/// The signal handlers of the process.
pub(crate) struct Signals {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    hangup: Signal,
    reopen: Signal,
    upgrade: Signal,
    changes: Option<ChangeReceiver>,
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
    /// A client of the status endpoint changes the configuration or an upstream.
    Change(ChangeRequest),
}

impl Signals {
    /// Installs the signal handlers. SIGHUP has one even if there is nothing to reload: its default
    /// action terminates the process.
    pub(crate) fn install() -> io::Result<Signals> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let _entered = runtime.enter();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let quit = signal(SignalKind::quit())?;
        let hangup = signal(SignalKind::hangup())?;
        let reopen = signal(SignalKind::user_defined1())?;
        let upgrade = signal(SignalKind::user_defined2())?;
        drop(_entered);
        let changes = None;
        Ok(Signals { runtime, interrupt, terminate, quit, hangup, reopen, upgrade, changes })
    }

    /// Makes changes of clients of the status endpoint events.
    pub(crate) fn receive_changes(&mut self, changes: ChangeReceiver) {
        self.changes = Some(changes);
    }

    /// Waits for the next event.
    pub(crate) fn next(&mut self, successor: &mut Option<Successor>) -> ControlEvent {
        self.runtime.block_on(async {
            let change = async {
                match &mut self.changes {
                    Some(changes) => match changes.recv().await {
                        Some(change) => change,
                        // The status endpoint has stopped.
                        None => pending().await,
                    },
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
                _ = self.hangup.recv() => ControlEvent::Reload,
                _ = self.reopen.recv() => ControlEvent::ReopenLogs,
                _ = self.upgrade.recv() => ControlEvent::Upgrade,
                change = change => ControlEvent::Change(change),
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
                | ControlEvent::UpgradeFinished(_)
                | ControlEvent::Change(_) => {}
            }
        }
    }
}
