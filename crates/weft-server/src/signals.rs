//! Signals that stop the program, and the one that has it load certificates anew.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT (Ctrl-C) and SIGTERM, caught from now on; SIGHUP where there is something to reload.
pub(crate) struct Signals {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn catch(hangup: bool) -> io::Result<Signals> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let _entered = runtime.enter();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        // It ends a program that does not catch it, as it always has.
        let hangup = hangup.then(|| signal(SignalKind::hangup())).transpose()?;
        drop(_entered);
        Ok(Signals { runtime, interrupt, terminate, hangup })
    }

    /// Waits for one that stops the program; there may be another.
    pub(crate) fn wait(mut self, reload: impl Fn()) -> Signals {
        self.runtime.block_on(async {
            loop {
                let hangup = async {
                    match &mut self.hangup {
                        Some(hangup) => hangup.recv().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = self.interrupt.recv() => return,
                    _ = self.terminate.recv() => return,
                    _ = hangup => reload(),
                }
            }
        });
        self
    }
}
