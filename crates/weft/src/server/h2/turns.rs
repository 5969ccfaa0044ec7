//! The order and the amount in which responses obtain content that is not in memory yet.
//!
//! Content is obtained when it can be sent. Otherwise a client that keeps its windows closed, or
//! does not read, would make the server hold content of all of its streams (CVE-2019-9517).
//!
//! 1. Streams that need content wait in one queue. The first one that may obtain content has the
//!    turn.
//! 2. While the output buffer is full, no stream may obtain content.
//! 3. If the windows of a stream and of the connection are worth a piece, the stream may obtain it.
//! 4. If they are smaller, the stream may obtain a piece while the connection holds less than
//!    [`MAX_OBTAINED_BYTES`]: a body may end, or have a frame that fits.
//! 5. A file whose window is closed is never read: its end is known in advance.
//! 6. A read of a file reserves its part of the connection's window, and all of them together are
//!    bounded by [`MAX_READING_BYTES`]: other streams take turns while a read waits for the disk.
//! 7. Small content is queued without a turn, up to [`MAX_SMALL_BYTES`] for the connection.

use std::collections::VecDeque;

use crate::server::h2::demand::{Demand, Holding};
use crate::server::h2::streams::{Stream, Streams};

/// Budget of a connection for content that was obtained and is not framed, if windows are narrow.
/// It is exceeded by less than one piece. 32 KiB: as much as the output buffer.
const MAX_OBTAINED_BYTES: usize = 32 << 10;

/// Maximum number of bytes of files that are being read for one connection. 64 KiB: four reads that
/// wait for the disk.
const MAX_READING_BYTES: usize = 64 << 10;

/// Budget of a connection for small content that is queued regardless of the windows; further
/// content waits. 32 KiB: eight responses, or as much as the output buffer.
const MAX_SMALL_BYTES: usize = 32 << 10;

/// The state of the connection's output.
#[derive(Clone, Copy)]
pub(super) struct OutputState {
    /// Set if the output buffer has space.
    pub(super) has_space: bool,
    /// The window of the connection.
    pub(super) window: usize,
}

/// The streams that wait for a turn, in their order, and the used budgets.
#[derive(Default)]
pub(super) struct Turns {
    waiting: VecDeque<u32>,
    reading: usize,
    obtained: usize,
    small: usize,
}

impl Turns {
    /// Takes a turn, if it is the stream's. Returns the number of bytes to read from a file.
    /// Otherwise the stream waits.
    pub(super) fn take(
        &mut self,
        streams: &mut Streams,
        id: u32,
        (demand, output): (Demand, OutputState),
    ) -> Option<usize> {
        let stream = streams.get_mut(id)?;
        if stream.holding != Holding::Waiting(demand) {
            self.release(stream);
            stream.holding = Holding::Waiting(demand);
            self.waiting.push_back(id);
        }
        if self.next(streams, output) != Some(id) {
            return None;
        }
        let stream = streams.get_mut(id)?;
        self.release(stream);
        let is_alone = self.waiting.is_empty() && self.used() == 0 && stream.content_sent() > 0;
        let bytes = demand.piece(self.window(stream, output), is_alone);
        self.reading += bytes;
        stream.holding = Holding::Reading(bytes);
        Some(bytes)
    }

    /// Returns the stream whose turn it is.
    pub(super) fn next(&self, streams: &Streams, output: OutputState) -> Option<u32> {
        if !output.has_space {
            return None;
        }
        let may_obtain = |id: &u32| streams.get(*id).is_some_and(|it| self.permits(it, output));
        self.waiting.iter().copied().find(may_obtain)
    }

    fn permits(&self, stream: &Stream, output: OutputState) -> bool {
        let Holding::Waiting(demand) = stream.holding else { return false };
        let window = self.window(stream, output);
        let is_worth_it = window >= demand.full_window() && self.reading < MAX_READING_BYTES;
        is_worth_it || (self.used() < MAX_OBTAINED_BYTES && (window > 0 || demand.may_be_empty()))
    }

    /// The number of bytes that the stream may send, without the part of the connection's window
    /// that is reserved for reads.
    fn window(&self, stream: &Stream, output: OutputState) -> usize {
        stream.window().available().min(output.window.saturating_sub(self.reading))
    }

    fn used(&self) -> usize {
        self.reading + self.obtained
    }

    /// Counts a piece that is queued. Content for which no turn was taken belongs to the
    /// application and is not counted.
    pub(super) fn on_queued(&mut self, stream: &mut Stream, bytes: usize) {
        if let Holding::Reading(_) = stream.holding {
            self.release(stream);
            self.obtained += bytes;
            stream.holding = Holding::Obtained(bytes);
        }
    }

    /// Counts small content. Returns false if the budget is used up.
    pub(super) fn queue_small(&mut self, stream: &mut Stream, bytes: usize) -> bool {
        let is_allowed = self.small + bytes <= MAX_SMALL_BYTES;
        if is_allowed {
            self.small += bytes;
            stream.holding = Holding::Small(bytes);
        }
        is_allowed
    }

    /// Counts framed content.
    pub(super) fn on_framed(&mut self, stream: &mut Stream, bytes: usize) {
        match &mut stream.holding {
            Holding::Obtained(held) => {
                self.obtained -= bytes;
                *held -= bytes;
            }
            Holding::Small(held) => {
                self.small -= bytes;
                *held -= bytes;
            }
            _ => {}
        }
    }

    /// Ends the wait of a stream, and returns its part of the budgets.
    pub(super) fn release(&mut self, stream: &mut Stream) {
        match std::mem::take(&mut stream.holding) {
            Holding::Nothing => {}
            Holding::Waiting(_) if self.waiting.front() == Some(&stream.id) => {
                self.waiting.pop_front();
            }
            Holding::Waiting(_) => self.waiting.retain(|waiting| *waiting != stream.id),
            Holding::Reading(bytes) => self.reading -= bytes,
            Holding::Obtained(bytes) => self.obtained -= bytes,
            Holding::Small(bytes) => self.small -= bytes,
        }
    }

    /// Frees the memory of a former larger number of streams.
    pub(super) fn shrink(&mut self) {
        self.waiting.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::h2::demand::{
        FILE_PIECE_BYTES, FRAME_WINDOW, LONE_FILE_PIECE_BYTES, MIN_FILE_PIECE_BYTES,
    };
    use weft_proto::http2::flow::{RecvWindow, SendWindow};

    const OPEN: OutputState = OutputState { has_space: true, window: 1 << 20 };

    /// A file that is larger than all windows.
    const FILE: Demand = Demand::File(1 << 20);

    fn stream(id: u32, window: i64) -> Stream {
        Stream::new(id, true, None, None, (SendWindow::new(window), RecvWindow::new(0)))
    }

    fn streams(windows: &[(u32, i64)]) -> Streams {
        let mut streams = Streams::default();
        windows.iter().for_each(|(id, window)| streams.push(stream(*id, *window)));
        streams
    }

    #[test]
    fn pieces_of_files_are_as_large_as_the_windows() {
        for (window, connection_window, remaining, alone, piece) in [
            (1 << 20, 1 << 20, 1 << 20, true, Some(LONE_FILE_PIECE_BYTES)),
            (1 << 20, 1 << 20, 1 << 20, false, Some(FILE_PIECE_BYTES)),
            (5_000, 1 << 20, 1 << 20, false, Some(5_000)),
            // A piece that is being read will use one byte of the window.
            (1 << 20, 5_000, 1 << 20, false, Some(4_999)),
            (1 << 20, 1 << 20, 3, false, Some(3)),
            (1, 1 << 20, 1 << 20, false, Some(MIN_FILE_PIECE_BYTES)),
            (1, 1 << 20, 10, false, Some(10)),
            (1 << 20, 2, 1 << 20, false, Some(MIN_FILE_PIECE_BYTES)),
            (1 << 20, 1, 1 << 20, false, None),
            (1 << 20, 0, 1 << 20, true, None),
            (0, 1 << 20, 1 << 20, false, None),
            (-1, 1 << 20, 1 << 20, false, None),
        ] {
            let mut turns = Turns { reading: usize::from(!alone), ..Turns::default() };
            let output = OutputState { window: connection_window, ..OPEN };
            let mut streams = streams(&[(1, window + 1)]);
            streams.get_mut(1).unwrap().content_framed(1, false);
            let taken = turns.take(&mut streams, 1, (Demand::File(remaining), output));
            assert_eq!(taken, piece, "{window} {connection_window} {remaining}");
        }
    }

    #[test]
    fn only_wide_windows_get_a_turn_without_a_budget() {
        let mut turns = Turns::default();
        let demand = Demand::Frame(FRAME_WINDOW);
        let (first, narrow, wide) = (1, 3, 5);
        let streams = &mut streams(&[(first, 10), (narrow, 10), (wide, 1 << 20)]);
        assert_eq!(turns.take(streams, first, (demand, OPEN)), Some(0));
        turns.on_queued(streams.get_mut(first).unwrap(), 64 << 10);
        assert_eq!(turns.take(streams, narrow, (demand, OPEN)), None);
        assert_eq!(turns.take(streams, wide, (demand, OPEN)), Some(0));
        // Not while the output or the window of the connection is closed.
        for output in
            [OutputState { has_space: false, ..OPEN }, OutputState { window: 1_000, ..OPEN }]
        {
            assert_eq!(turns.take(streams, wide, (demand, output)), None);
            assert_eq!(turns.next(streams, output), None);
        }
        assert_eq!(turns.next(streams, OPEN), Some(wide));
        // A smaller last frame needs a smaller window.
        assert_eq!(turns.take(streams, narrow, (Demand::Frame(10), OPEN)), None);
        turns.release(streams.get_mut(wide).unwrap());
        assert_eq!(turns.take(streams, narrow, (Demand::Frame(10), OPEN)), Some(0));
        // The budget is returned.
        turns.release(streams.get_mut(first).unwrap());
        assert_eq!(turns.take(streams, narrow, (demand, OPEN)), Some(0));
        streams.iter_mut().for_each(|stream| turns.release(stream));
        assert!(turns.used() == 0 && turns.waiting.is_empty());
    }

    /// The responses of a client that opens the windows of its streams only: together they hold as
    /// much as the window of the connection.
    #[test]
    fn the_window_of_the_connection_bounds_all_streams_together() {
        let mut turns = Turns::default();
        let output = OutputState { window: 65_535, ..OPEN };
        let streams = &mut Streams::default();
        (0..128).for_each(|n| streams.push(stream(2 * n + 1, 1 << 20)));
        for n in 0..128 {
            turns.take(streams, 2 * n + 1, (FILE, output));
        }
        assert_eq!((turns.used(), turns.reading), (65_535, 65_535));
        // Content of a stream without a window leaves the window of the connection to other streams.
        let first = streams.get_mut(1).unwrap();
        first.adjust_window(-(1 << 20)).unwrap();
        turns.on_queued(first, FILE_PIECE_BYTES);
        assert!(turns.next(streams, output).is_some());
        streams.iter_mut().for_each(|stream| turns.release(stream));
        assert_eq!((turns.used(), turns.reading), (0, 0));
    }

    #[test]
    fn streams_take_turns() {
        let mut turns = Turns::default();
        let closed = OutputState { has_space: false, ..OPEN };
        let streams = &mut streams(&[1, 3, 5].map(|id| (id, 1 << 20)));
        let mut order = Vec::new();
        for id in [1, 3, 5] {
            assert_eq!(turns.take(streams, id, (FILE, closed)), None);
        }
        for _ in 0..6 {
            let next = turns.next(streams, OPEN).unwrap();
            let piece = turns.take(streams, next, (FILE, OPEN)).unwrap();
            let stream = streams.get_mut(next).unwrap();
            turns.on_queued(stream, piece);
            turns.on_framed(stream, piece);
            order.push(next);
            assert_eq!(turns.take(streams, next, (FILE, closed)), None);
        }
        assert_eq!(order, [1, 3, 5, 1, 3, 5]);
    }

    #[test]
    fn a_window_update_permits_a_turn() {
        for (obtained, turns_by_increment) in [
            (0, [(0, None), (1, Some(1)), (MIN_FILE_PIECE_BYTES, Some(1))]),
            (MAX_OBTAINED_BYTES, [(0, None), (1, None), (MIN_FILE_PIECE_BYTES, Some(1))]),
        ] {
            let mut turns = Turns { obtained, ..Turns::default() };
            let streams = &mut streams(&[(1, 0)]);
            assert_eq!(turns.take(streams, 1, (FILE, OPEN)), None);
            for (increment, turn) in turns_by_increment {
                streams.get_mut(1).unwrap().increase_window(increment as i64).unwrap();
                assert_eq!(turns.next(streams, OPEN), turn, "{obtained} {increment}");
            }
        }
    }
}
