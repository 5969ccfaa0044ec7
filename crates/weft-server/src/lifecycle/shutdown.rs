//! The end of the process: a delay, the drain of its connections, and the exit.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft::server::ShutdownHandle;
use weft_config::show_time;

use super::ServerProcess;
use super::signals::Signals;
use crate::logs::Logs;
use crate::sockets::systemd;
use crate::stream_server::StreamDeadline;

/// Maximum time to wait at exit for a log output that accepts no data.
const LOG_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Time in which idle connections may send one more request after another process has taken over.
const IDLE_GRACE: Duration = Duration::from_secs(5);

/// Reason for the exit of the process.
pub(super) enum ExitMode {
    /// Stop within `drain_timeout`. Has the name of the signal.
    Stop(&'static str),
    /// Stop without a time limit.
    Quit,
    /// Another process serves the sockets.
    HandedOver,
}

impl ServerProcess<'_> {
    /// Ends the process.
    pub(super) fn exit(self, mode: ExitMode, mut signals: Signals) {
        if !matches!(mode, ExitMode::HandedOver) {
            self.begin_shutdown(&mode, &mut signals);
        }
        let active = self.active();
        let (plan, response_store) = (&active.plan, active.opened.response_store.clone());
        let ServerProcess { handle, status, mut streams, logs, pid_file, .. } = self;
        streams.close();
        if matches!(mode, ExitMode::Stop(_)) {
            // Only in this mode: the others may take long, and the log buffers must stay bounded.
            logs.release();
            watch_for_stop(signals, logs.clone(), None);
        } else {
            let shutdown = (handle.shutdown_handle(), streams.deadline(), plan.top.drain_timeout);
            watch_for_stop(signals, logs.clone(), Some(shutdown));
        }
        match mode {
            ExitMode::HandedOver => {
                // The status endpoint stops first, so that the other process answers all of its
                // requests.
                if let Some(status) = status {
                    status.drain_after_handover();
                }
                // The other process waits for the folder.
                let saving = response_store.save_in_background();
                streams.deadline().set(plan.top.handover_timeout);
                handle.drain_after_handover(plan.top.handover_timeout, IDLE_GRACE);
                streams.finish();
                saving.map(JoinHandle::join);
            }
            ExitMode::Stop(_) | ExitMode::Quit => {
                systemd::stopping();
                let is_unlimited = matches!(mode, ExitMode::Quit);
                let limit = if is_unlimited { Duration::MAX } else { plan.top.drain_timeout };
                streams.deadline().set(limit);
                let start = Instant::now();
                handle.shutdown(limit);
                streams.finish();
                if start.elapsed() >= limit {
                    log::warn!(
                        "requests in progress after `drain_timeout` ({}) were cut",
                        show_time(limit)
                    );
                }
                response_store.save();
                if let Some(status) = status {
                    status.stop();
                }
                if let Some(file) = pid_file {
                    file.remove();
                }
                log::info!("the server has stopped");
            }
        }
        logs.close(LOG_FLUSH_TIMEOUT);
    }

    /// Logs the stop, and keeps serving for `shutdown_delay`, or until the next stop signal. Load
    /// balancers learn of the stop by `/ready` of the status endpoint meanwhile.
    fn begin_shutdown(&self, mode: &ExitMode, signals: &mut Signals) {
        let top = &self.active().plan.top;
        let (delay, drain) = (top.shutdown_delay, show_time(top.drain_timeout));
        let (signal, rest) = match mode {
            ExitMode::Stop(signal) => (*signal, format!("requests in progress have {drain}")),
            ExitMode::Quit => ("SIGQUIT", "requests in progress are completed".to_owned()),
            ExitMode::HandedOver => return,
        };
        if delay.is_zero() {
            log::info!("{signal}: the server stops; {rest}");
            return;
        }
        log::info!(
            "{signal}: the server stops in {} (`shutdown_delay`); then {rest}",
            show_time(delay)
        );
        if let Some(status) = &self.status {
            status.registry.set_stopping();
        }
        let end = Instant::now().checked_add(delay);
        if signals.wait_for_stop_until(end, || self.logs.reopen()) {
            log::info!("a second signal ends `shutdown_delay`");
        }
    }
}

/// Handles signals during a shutdown, in a separate thread. With `limit`, the first stop signal
/// limits the rest of the shutdown to that duration. The next stop signal exits the process.
fn watch_for_stop(
    mut signals: Signals,
    logs: Arc<Logs>,
    limit: Option<(ShutdownHandle, StreamDeadline, Duration)>,
) {
    let watch = move || {
        if let Some((shutdown, streams, grace)) = limit {
            signals.wait_for_stop(|| logs.reopen());
            logs.release();
            shutdown.set_deadline(grace);
            streams.set(grace);
        }
        // A repeated stop signal exits at once, except that the logs are written.
        signals.wait_for_stop(|| logs.reopen());
        logs.close(LOG_FLUSH_TIMEOUT);
        std::process::exit(1);
    };
    // If the thread cannot be started, further signals are ignored, and the shutdown completes
    // anyway.
    let thread = std::thread::Builder::new().name("weft-signals".to_owned());
    drop(thread.spawn(watch));
}
