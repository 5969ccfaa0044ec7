//! The number of bytes of a file that a connection sends before other connections get their turn.
//!
//! A socket may accept megabytes at once. If 200 clients request a large file at the same time, and
//! each gets 2 MiB in its turn, a small request waits for 400 MiB. So the connections that are
//! ready to send more share a limit. Connections that wait for their peers do not count: a download
//! among slow readers has turns of full length, which take fewer system calls.

use std::cell::Cell;

/// Maximum length of a turn.
pub(super) const MAX_TURN_BYTES: u64 = 2 << 20;

/// Minimum length of a turn: below it, system calls cost more than the bytes.
const MIN_TURN_BYTES: u64 = 256 << 10;

/// Number of bytes that all connections of a thread send in their turns, except for the minimum.
const ROUND_BYTES: u64 = 8 << 20;

thread_local! {
    /// Number of connections that have sent a turn, and are ready to send the next one.
    static YIELDING: Cell<u64> = const { Cell::new(0) };
}

/// The current turn of a connection.
pub(super) struct FileTurn {
    length: u64,
    remaining: u64,
}

impl FileTurn {
    pub(super) fn new() -> FileTurn {
        let sharing = YIELDING.get() + 1;
        let length = (ROUND_BYTES / sharing).clamp(MIN_TURN_BYTES, MAX_TURN_BYTES);
        FileTurn { length, remaining: length }
    }

    /// Maximum number of bytes for one call. After a short transfer it is more than the rest of the
    /// turn, which may be a few bytes only.
    pub(super) fn max_call_bytes(&self) -> u64 {
        self.length
    }

    /// Records sent bytes. If the turn has ended, lets other tasks run, and begins the next one.
    pub(super) async fn spend(&mut self, sent: usize) {
        self.remaining = self.remaining.saturating_sub(sent as u64);
        if self.remaining == 0 {
            let yielding = Yielding::new();
            tokio::task::yield_now().await;
            drop(yielding);
            *self = FileTurn::new();
        }
    }
}

/// Counts a connection while it yields, also if its task is dropped meanwhile.
struct Yielding;

impl Yielding {
    fn new() -> Yielding {
        YIELDING.set(YIELDING.get() + 1);
        Yielding
    }
}

impl Drop for Yielding {
    fn drop(&mut self) {
        // A task that is dropped in another thread was not counted there.
        YIELDING.set(YIELDING.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn turns_are_shorter_while_other_connections_yield() {
        let first = FileTurn::new();
        assert_eq!(first.max_call_bytes(), MAX_TURN_BYTES);
        {
            let mut turns: Vec<_> = (0..100).map(|_| FileTurn::new()).collect();
            let mut yields: Vec<_> =
                turns.iter_mut().map(|turn| Box::pin(turn.spend(1 << 30))).collect();
            let cx = &mut Context::from_waker(Waker::noop());
            for (count, turn) in yields.iter_mut().enumerate() {
                let expected =
                    (ROUND_BYTES / (count as u64 + 1)).clamp(MIN_TURN_BYTES, MAX_TURN_BYTES);
                assert_eq!(FileTurn::new().max_call_bytes(), expected, "{count} others");
                assert!(turn.as_mut().poll(cx).is_pending());
            }
            assert_eq!(FileTurn::new().max_call_bytes(), MIN_TURN_BYTES);
        }
        // Tasks that are dropped do not count any more.
        let mut turn = FileTurn::new();
        assert_eq!(turn.max_call_bytes(), MAX_TURN_BYTES);
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(pin!(turn.spend(1)).as_mut().poll(cx).is_ready(), "the turn has not ended");
    }
}
