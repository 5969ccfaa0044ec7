//! What the program is told while it runs: by signals, and by the process that is to follow it.

use std::future::pending;
use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::handover::{Arrival, Successor};

/// The signals that count, caught from now on.
pub(crate) struct Signals {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    hangup: Option<Signal>,
    reopen: Signal,
    upgrade: Signal,
}

/// What the program is to do.
pub(crate) enum Order {
    /// To stop, and to wait for what is under way for a while (SIGINT, that is Ctrl-C, and
    /// SIGTERM).
    Stop,
    /// To stop, and to wait for what is under way as long as that takes (SIGQUIT).
    Finish,
    /// To do what the configuration says now (SIGHUP).
    Reload,
    /// To open the log files anew (SIGUSR1).
    Reopen,
    /// To start what the program's file is now, and to give it the sockets (SIGUSR2).
    Upgrade,
    /// What became of that.
    Arrived(Arrival),
}

impl Signals {
    /// `hangup` says whether there is something to reload: SIGHUP ends a program that
    /// does not catch it, such as one whose terminal is closed.
    pub(crate) fn catch(hangup: bool) -> io::Result<Signals> {
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

    /// Waits for the next order.
    pub(crate) fn next(&mut self, successor: &mut Option<Successor>) -> Order {
        self.runtime.block_on(async {
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => hangup.recv().await,
                    None => pending().await,
                }
            };
            let arrival = async {
                match successor {
                    Some(successor) => successor.arrival().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                _ = self.interrupt.recv() => Order::Stop,
                _ = self.terminate.recv() => Order::Stop,
                _ = self.quit.recv() => Order::Finish,
                _ = hangup => Order::Reload,
                _ = self.reopen.recv() => Order::Reopen,
                _ = self.upgrade.recv() => Order::Upgrade,
                arrival = arrival => Order::Arrived(arrival),
            }
        })
    }

    /// Waits for one that says that the program is to stop.
    pub(crate) fn wait_for_stop(&mut self, reopen: impl Fn()) {
        loop {
            match self.next(&mut None) {
                Order::Stop => return,
                Order::Reopen => reopen(),
                Order::Finish | Order::Reload | Order::Upgrade | Order::Arrived(_) => {}
            }
        }
    }
}
