//! The order and the amount in which responses obtain content that is not in memory yet.
//!
//! A piece of a file, or a frame of a body, is obtained when it can be sent, apart from a small
//! amount per connection. Otherwise a client that keeps its windows closed, or does not read, would
//! make the server hold content of all of its streams (CVE-2019-9517).
//!
//! Waiting streams are in one of two lanes, by the window of the stream:
//!
//! - *wide*: the window is worth a piece. Such a stream gets its turn even if other streams have
//!   used up the budget of the connection because their clients do not read.
//! - *narrow*: the window is smaller. Such a stream gets its turn while the budget lasts: a body
//!   may end, or have a frame that fits.
//!
//! A file whose window is closed is in neither: its end is known in advance. Nor is a file read
//! while the content that was obtained before it will use up the window of the connection.

use std::collections::VecDeque;

use crate::server::h2::demand::{Demand, Holding, Lane, Obtained};
use crate::server::h2::streams::Stream;

/// Budget of a connection for content that was obtained and cannot be sent yet. It is exceeded by
/// less than one piece. 32 KiB: as much as the output buffer.
const MAX_AHEAD_BYTES: usize = 32 << 10;

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

/// The streams that wait for a turn, in its order, and the used budgets.
#[derive(Default)]
pub(super) struct Turns {
    wide: VecDeque<Waiting>,
    narrow: VecDeque<Waiting>,
    reading: usize,
    ahead: usize,
    small: usize,
    /// Sum of the claims on the window of the connection.
    claimed: usize,
}

struct Waiting {
    stream: u32,
    demand: Demand,
}

impl Turns {
    fn lane(&mut self, lane: Lane) -> &mut VecDeque<Waiting> {
        match lane {
            Lane::Wide => &mut self.wide,
            Lane::Narrow => &mut self.narrow,
        }
    }

    /// Takes a turn, if it is the stream's. Returns the number of bytes to read from a file.
    /// Otherwise the stream waits.
    pub(super) fn take(
        &mut self,
        stream: &mut Stream,
        demand: Demand,
        output: OutputState,
    ) -> Option<usize> {
        let window = stream.window().available();
        let lane = demand.lane(window);
        let is_next = lane.is_some_and(|lane| match self.lane(lane).front() {
            Some(front) if front.stream != stream.id => false,
            _ => self.permits(lane, demand, output),
        });
        if !is_next {
            self.enqueue(stream, demand, lane);
            return None;
        }
        self.release(stream);
        let is_alone = self.wide.is_empty() && self.narrow.is_empty() && self.used() == 0;
        let is_alone = is_alone && stream.content_sent() > 0;
        let bytes = demand.piece(window.min(self.free_window(output)), is_alone);
        let obtained = Obtained::new(bytes, stream.window().available());
        self.reading += bytes;
        self.claimed += obtained.claim;
        stream.holding = Holding::Reading(obtained);
        Some(bytes)
    }

    /// Returns the next stream of a lane, if it may take its turn now.
    pub(super) fn next(&mut self, lane: Lane, output: OutputState) -> Option<u32> {
        let &Waiting { stream, demand } = self.lane(lane).front()?;
        self.permits(lane, demand, output).then_some(stream)
    }

    fn permits(&self, lane: Lane, demand: Demand, output: OutputState) -> bool {
        let window = self.free_window(output);
        let has_budget = self.used() < MAX_AHEAD_BYTES && (window > 0 || demand.may_be_empty());
        let is_worth_it = || self.reading < MAX_READING_BYTES && window >= demand.full_window();
        output.has_space && (has_budget || (lane == Lane::Wide && is_worth_it()))
    }

    /// The window of the connection, without the part that obtained content will use.
    fn free_window(&self, output: OutputState) -> usize {
        output.window.saturating_sub(self.claimed)
    }

    fn used(&self) -> usize {
        self.reading + self.ahead
    }

    /// Makes a stream wait for a turn, at the end of `lane` if its window is not closed.
    fn enqueue(&mut self, stream: &mut Stream, demand: Demand, lane: Option<Lane>) {
        let holding = Holding::Waiting(demand, lane);
        if stream.holding == holding {
            return;
        }
        self.release(stream);
        stream.holding = holding;
        if let Some(lane) = lane {
            self.lane(lane).push_back(Waiting { stream: stream.id, demand });
        }
    }

    /// Processes a change of a stream's window.
    pub(super) fn on_window_changed(&mut self, stream: &mut Stream) {
        let window = stream.window().available();
        match &mut stream.holding {
            Holding::Waiting(demand, _) => {
                let demand = *demand;
                self.enqueue(stream, demand, demand.lane(window));
            }
            Holding::Reading(Obtained { bytes, claim })
            | Holding::Ahead(Obtained { bytes, claim }) => {
                let former = std::mem::replace(claim, window.min(*bytes));
                self.claimed = self.claimed - former + *claim;
            }
            Holding::Nothing | Holding::Small(_) => {}
        }
    }

    /// Counts a piece that is queued. Content for which no turn was taken belongs to the
    /// application and is not counted.
    pub(super) fn on_queued(&mut self, stream: &mut Stream, bytes: usize) {
        if let Holding::Reading(_) = stream.holding {
            self.release(stream);
            let obtained = Obtained::new(bytes, stream.window().available());
            self.ahead += bytes;
            self.claimed += obtained.claim;
            stream.holding = Holding::Ahead(obtained);
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

    /// Counts framed content, before it is subtracted from the windows.
    pub(super) fn on_framed(&mut self, stream: &mut Stream, bytes: usize) {
        match &mut stream.holding {
            Holding::Ahead(held) => {
                self.ahead -= bytes;
                self.claimed -= bytes;
                held.bytes -= bytes;
                held.claim -= bytes;
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
            Holding::Nothing | Holding::Waiting(_, None) => {}
            Holding::Waiting(_, Some(lane)) => {
                let lane = self.lane(lane);
                match lane.front() {
                    Some(front) if front.stream == stream.id => drop(lane.pop_front()),
                    _ => lane.retain(|waiting| waiting.stream != stream.id),
                }
            }
            Holding::Reading(Obtained { bytes, claim }) => {
                self.reading -= bytes;
                self.claimed -= claim;
            }
            Holding::Ahead(Obtained { bytes, claim }) => {
                self.ahead -= bytes;
                self.claimed -= claim;
            }
            Holding::Small(bytes) => self.small -= bytes,
        }
    }

    /// Frees the memory of a former larger number of streams.
    pub(super) fn shrink(&mut self) {
        self.wide.shrink_to_fit();
        self.narrow.shrink_to_fit();
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

    fn stream(id: u32, window: i64) -> Stream {
        Stream::new(id, true, None, None, (SendWindow::new(window), RecvWindow::new(0)))
    }

    #[test]
    fn pieces_of_files_are_as_large_as_the_windows() {
        for (window, connection_window, remaining, alone, piece) in [
            (1 << 20, 1 << 20, 1 << 20, true, Some(LONE_FILE_PIECE_BYTES)),
            (1 << 20, 1 << 20, 1 << 20, false, Some(FILE_PIECE_BYTES)),
            (5_000, 1 << 20, 1 << 20, false, Some(5_000)),
            // Content that was obtained before will use one byte of the window.
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
            let before = usize::from(!alone);
            let mut turns = Turns { ahead: before, claimed: before, ..Turns::default() };
            let output = OutputState { window: connection_window, ..OPEN };
            let mut stream = stream(1, window + 1);
            stream.content_framed(1, false);
            let taken = turns.take(&mut stream, Demand::File(remaining), output);
            assert_eq!(taken, piece, "{window} {connection_window} {remaining}");
        }
    }

    #[test]
    fn only_wide_windows_get_a_turn_without_a_budget() {
        let mut turns = Turns::default();
        let demand = Demand::Frame(FRAME_WINDOW);
        let (mut first, mut narrow, mut wide) = (stream(1, 10), stream(3, 10), stream(5, 1 << 20));
        assert_eq!(turns.take(&mut first, demand, OPEN), Some(0));
        turns.on_queued(&mut first, 64 << 10);
        assert_eq!(turns.take(&mut narrow, demand, OPEN), None);
        assert_eq!(turns.take(&mut wide, demand, OPEN), Some(0));
        // Not while the output or the window of the connection is closed.
        for output in
            [OutputState { has_space: false, ..OPEN }, OutputState { window: 1_000, ..OPEN }]
        {
            assert_eq!(turns.take(&mut wide, demand, output), None);
            assert_eq!(
                (turns.next(Lane::Wide, output), turns.next(Lane::Narrow, output)),
                (None, None)
            );
        }
        assert_eq!(turns.next(Lane::Wide, OPEN), Some(5));
        // A smaller last frame needs a smaller window.
        assert_eq!(turns.take(&mut narrow, Demand::Frame(10), OPEN), None);
        turns.release(&mut wide);
        assert_eq!(turns.take(&mut narrow, Demand::Frame(10), OPEN), Some(0));
        // The budget is returned.
        turns.release(&mut first);
        assert_eq!(turns.take(&mut narrow, demand, OPEN), Some(0));
        for stream in [&mut first, &mut narrow, &mut wide] {
            turns.release(stream);
        }
        assert!(turns.used() == 0 && turns.wide.is_empty() && turns.narrow.is_empty());
        assert_eq!(turns.claimed, 0);
    }

    /// The responses of a client that opens the windows of its streams only: together they hold as
    /// much as the window of the connection.
    #[test]
    fn the_window_of_the_connection_bounds_all_streams_together() {
        let mut turns = Turns::default();
        let output = OutputState { window: 65_535, ..OPEN };
        let mut streams: Vec<_> = (0..128).map(|n| stream(2 * n + 1, 1 << 20)).collect();
        for stream in &mut streams {
            if let Some(bytes) = turns.take(stream, Demand::File(1 << 20), output) {
                turns.on_queued(stream, bytes);
            }
        }
        assert_eq!((turns.used(), turns.claimed), (65_535, 65_535));
        // If a stream has no window, its content leaves the window of the connection to other
        // streams.
        streams[0].adjust_window(-(1 << 20)).unwrap();
        turns.on_window_changed(&mut streams[0]);
        assert!(turns.next(Lane::Wide, output).is_some());
        streams.iter_mut().for_each(|stream| turns.release(stream));
        assert_eq!((turns.used(), turns.claimed), (0, 0));
    }

    #[test]
    fn streams_of_a_lane_take_turns() {
        let mut turns = Turns::default();
        let closed = OutputState { has_space: false, ..OPEN };
        let mut streams = [1, 3, 5].map(|id| stream(id, 1 << 20));
        let mut order = Vec::new();
        for stream in &mut streams {
            assert_eq!(turns.take(stream, Demand::File(1 << 20), closed), None);
        }
        for _ in 0..6 {
            let next = turns.next(Lane::Wide, OPEN).unwrap();
            let stream = streams.iter_mut().find(|stream| stream.id == next).unwrap();
            let piece = turns.take(stream, Demand::File(1 << 20), OPEN).unwrap();
            turns.on_queued(stream, piece);
            turns.on_framed(stream, piece);
            order.push(next);
            assert_eq!(turns.take(stream, Demand::File(1 << 20), closed), None);
        }
        assert_eq!(order, [1, 3, 5, 1, 3, 5]);
    }

    #[test]
    fn a_window_update_moves_a_stream_to_another_lane() {
        let mut turns = Turns { ahead: MAX_AHEAD_BYTES, ..Turns::default() };
        let mut stream = stream(1, 0);
        assert_eq!(turns.take(&mut stream, Demand::File(1 << 20), OPEN), None);
        for (increment, wide, narrow) in [(0, 0, 0), (1, 0, 1), (MIN_FILE_PIECE_BYTES, 1, 0)] {
            stream.increase_window(increment as i64).unwrap();
            turns.on_window_changed(&mut stream);
            assert_eq!((turns.wide.len(), turns.narrow.len()), (wide, narrow), "{increment}");
        }
        assert_eq!(turns.next(Lane::Wide, OPEN), Some(1));
    }
}
