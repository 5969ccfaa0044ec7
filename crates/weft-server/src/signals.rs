//! Signals that stop the program.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT (Ctrl-C) and SIGTERM, caught from now on.
pub(crate) struct Signals {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Signals> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let _entered = runtime.enter();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        drop(_entered);
        Ok(Signals { runtime, interrupt, terminate })
    }

    /// Waits for one of them; there may be another.
    pub(crate) fn wait(mut self) -> Signals {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
        });
        self
    }
}
