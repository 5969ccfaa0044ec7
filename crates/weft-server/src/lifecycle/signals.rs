//! Control events of the running process: signals, requests, and the result of an upgrade.

use std::future::pending;
use std::io;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval_at, timeout_at};
use weft_config::Sources;

use super::control::{ControlClient, ControlSocket};
use super::watch::TextSender;
use crate::base::sys::FEATURES;
use crate::cli::control_request::ControlRequest;
use crate::config_change::{ChangeReceiver, ChangeRequest};
use crate::sockets::handover::{Successor, UpgradeResult};

/// The signal handlers of the process, and the other sources of events.
pub(crate) struct Signals {
    runtime: Runtime,
    sources: EventSources,
}

struct EventSources {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    hangup: Signal,
    reopen: Signal,
    upgrade: Signal,
    changes: Option<ChangeReceiver>,
    control: Option<ControlSocket>,
    texts: (TextSender, mpsc::Receiver<Sources>),
    daily: Interval,
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// An event that controls the process.
pub(crate) enum ControlEvent {
    /// Stop, and wait up to `drain_timeout` for requests in flight (SIGINT, that is Ctrl-C, and
    /// SIGTERM). Has the name of the signal.
    Stop(&'static str),
    /// Stop, and wait for requests in flight without a limit (SIGQUIT).
    Quit,
    /// Reload the configuration (SIGHUP).
    Reload,
    /// A client of the control socket waits for the result of its request.
    Request(ControlRequest, ControlClient),
    /// The files of the configuration have these texts now.
    FilesChanged(Sources),
    /// A day has passed.
    Daily,
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
        let mut daily = interval_at(tokio::time::Instant::now() + DAY, DAY);
        daily.set_missed_tick_behavior(MissedTickBehavior::Delay);
        drop(_entered);
        let (changes, control, texts) = (None, None, mpsc::channel(1));
        let sources = EventSources {
            interrupt,
            terminate,
            quit,
            hangup,
            reopen,
            upgrade,
            changes,
            control,
            texts,
            daily,
        };
        Ok(Signals { runtime, sources })
    }

    /// Opens the control socket of the process, which has its final user, if the system has such
    /// sockets. Where it has none, `weft reload` and the like report so.
    pub(crate) fn open_control_socket(&mut self) {
        if !FEATURES.control_socket {
            return;
        }
        let _entered = self.runtime.enter();
        match ControlSocket::bind() {
            Ok(socket) => self.sources.control = Some(socket),
            Err(error) => {
                log::warn!("`weft reload`, `stop` and `upgrade` cannot reach this process: {error}")
            }
        }
    }

    /// Returns the sender of changed texts of the configuration.
    pub(crate) fn text_sender(&self) -> TextSender {
        self.sources.texts.0.clone()
    }

    /// Makes changes of clients of the status endpoint events.
    pub(crate) fn receive_changes(&mut self, changes: ChangeReceiver) {
        self.sources.changes = Some(changes);
    }

    /// Waits for the next event.
    pub(crate) fn next(&mut self, successor: &mut Option<Successor>) -> ControlEvent {
        self.runtime.block_on(self.sources.next(successor))
    }

    /// Waits for a stop signal. Calls `reopen` for each request to reopen the log files.
    pub(crate) fn wait_for_stop(&mut self, reopen: impl Fn()) {
        self.wait_for_stop_until(None, reopen);
    }

    /// Waits for a stop signal, and returns true, or until `end`. Calls `reopen` for each request
    /// to reopen the log files. Other requests are refused.
    pub(crate) fn wait_for_stop_until(&mut self, end: Option<Instant>, reopen: impl Fn()) -> bool {
        loop {
            let mut no_upgrade = None;
            let next = self.sources.next(&mut no_upgrade);
            let event = self.runtime.block_on(async {
                match end {
                    Some(end) => timeout_at(end.into(), next).await.ok(),
                    None => Some(next.await),
                }
            });
            match event {
                None => return false,
                Some(ControlEvent::Stop(_)) => return true,
                Some(ControlEvent::ReopenLogs) => reopen(),
                Some(ControlEvent::Request(_, client)) => client.refuse(),
                Some(_) => {}
            }
        }
    }
}

impl EventSources {
    /// Waits for the next event.
    async fn next(&mut self, successor: &mut Option<Successor>) -> ControlEvent {
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
        let request = async {
            match &mut self.control {
                Some(control) => control.next().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => ControlEvent::Stop("SIGINT"),
            _ = self.terminate.recv() => ControlEvent::Stop("SIGTERM"),
            _ = self.quit.recv() => ControlEvent::Quit,
            _ = self.hangup.recv() => ControlEvent::Reload,
            _ = self.reopen.recv() => ControlEvent::ReopenLogs,
            _ = self.upgrade.recv() => ControlEvent::Upgrade,
            change = change => ControlEvent::Change(change),
            (request, client) = request => ControlEvent::Request(request, client),
            Some(texts) = self.texts.1.recv() => ControlEvent::FilesChanged(texts),
            _ = self.daily.tick() => ControlEvent::Daily,
            result = upgrade_result => ControlEvent::UpgradeFinished(result),
        }
    }
}
