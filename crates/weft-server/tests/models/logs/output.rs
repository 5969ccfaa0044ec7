//! A log output in memory.

use shuttle::sync::{Arc, Condvar, Mutex};

/// Written lines, and the number of lost ones.
#[derive(Default)]
pub struct Written {
    pub lines: Vec<u8>,
    pub lost: u64,
    pub is_finished: bool,
}

/// The stand-in for an output of a log.
#[derive(Clone, Default)]
pub struct Output {
    pub written: Arc<Mutex<Written>>,
    /// While it is set, writes block.
    pub is_blocked: Arc<(Mutex<bool>, Condvar)>,
    pub is_lossy: bool,
}

impl Output {
    pub fn is_lossy(&self) -> bool {
        self.is_lossy
    }

    pub fn has_backlog(&self) -> bool {
        false
    }

    pub fn reopen(&mut self) {}

    pub fn write_backlog(&mut self) {}

    pub fn write(&mut self, lines: &[u8]) {
        let (is_blocked, unblocked) = &*self.is_blocked;
        drop(unblocked.wait_while(is_blocked.lock().unwrap(), |is_blocked| *is_blocked).unwrap());
        self.written.lock().unwrap().lines.extend_from_slice(lines);
    }

    pub fn add_lost(&mut self, lines: u64) {
        self.written.lock().unwrap().lost += lines;
    }

    pub fn finish(&mut self) {
        self.written.lock().unwrap().is_finished = true;
    }
}
