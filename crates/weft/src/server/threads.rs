//! Threads of a server: their start and their end.

use std::convert::Infallible;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc;

use crate::error::{Error, ErrorKind, Result};

/// The threads of a server.
pub(super) struct Threads {
    handles: Vec<JoinHandle<()>>,
    /// Each thread has a clone, until it ends. `None` once no more threads are started.
    running: Option<mpsc::Sender<Infallible>>,
    all_ended: mpsc::Receiver<Infallible>,
}

impl Threads {
    pub(super) fn new() -> Threads {
        let (running, all_ended) = mpsc::channel(1);
        Threads { handles: Vec::new(), running: Some(running), all_ended }
    }

    /// Starts a thread with its own event loop. Returns when `prepare` has finished on that thread,
    /// with its error if it failed.
    pub(super) fn spawn<T>(
        &mut self,
        name: String,
        prepare: impl FnOnce(&LocalRuntime) -> Result<T> + Send + 'static,
        run: impl FnOnce(&LocalRuntime, T) + Send + 'static,
    ) -> Result<()> {
        let running = self.running.clone().expect("threads are started before any wait");
        self.handles.push(spawn(name, running, prepare, run)?);
        Ok(())
    }

    /// Blocks until all threads have ended.
    pub(super) fn join(self) {
        for thread in self.handles {
            // The panic hook has already reported the panic of a thread.
            let _ = thread.join();
        }
    }

    /// Waits until all threads have ended.
    pub(super) async fn ended(&mut self) {
        self.running = None;
        // No value exists that could be received.
        let _ = self.all_ended.recv().await;
    }
}

fn spawn<T>(
    name: String,
    running: mpsc::Sender<Infallible>,
    prepare: impl FnOnce(&LocalRuntime) -> Result<T> + Send + 'static,
    run: impl FnOnce(&LocalRuntime, T) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let (ready_tx, ready_rx) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        // Dropped last.
        let _running = running;
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default());
        let runtime = runtime.map_err(Error::from);
        // The starting thread waits for this result in every case.
        match runtime.and_then(|runtime| Ok((prepare(&runtime)?, runtime))) {
            Ok((prepared, runtime)) => {
                let _ = ready_tx.send(Ok(()));
                run(&runtime, prepared);
                // Does not wait for blocking tasks of the application.
                runtime.shutdown_background();
            }
            Err(error) => drop(ready_tx.send(Err(error))),
        }
    })?;
    match ready_rx.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(ErrorKind::Panicked, "a worker panicked while it started")),
    }
}
