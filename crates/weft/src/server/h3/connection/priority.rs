//! Priorities of responses (RFC 9218): the transport sends the data of urgent streams first.

use std::cmp::Reverse;
use std::collections::VecDeque;

use quinn_proto::StreamId;

use crate::net::quic::Connection;
use crate::server::h3::connection::{Http3Connection, stream_id};
use crate::server::h3::stream::Stream;
use crate::server::multiplex::field_block::ParsedRequest;
use weft_proto::semantics::priority::Priority;

/// Priorities of requests that have not arrived. A frame may overtake its request (§7).
#[derive(Default)]
pub(super) struct PriorityUpdates {
    /// Streams with the latest priority of each, oldest first.
    pending: VecDeque<(u64, Priority)>,
}

/// Maximum number of pending updates. Beyond it, the oldest one is dropped.
const MAX_PENDING: usize = 16;

impl PriorityUpdates {
    fn store(&mut self, stream: u64, priority: Priority) {
        self.take(stream);
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back((stream, priority));
    }

    fn take(&mut self, stream: u64) -> Option<Priority> {
        let index = self.pending.iter().position(|(pending, _)| *pending == stream)?;
        self.pending.remove(index).map(|(_, priority)| priority)
    }
}

impl Http3Connection {
    /// Applies the priority of a request: the latest update (§7.2), or its field (§5). Without
    /// both, its response shares the bandwidth with others, as in HTTP/2.
    pub(super) fn prioritize_request(&mut self, id: StreamId, request: Option<&ParsedRequest>) {
        let of_field = || {
            let value = request?.head.headers().get_bytes("priority")?;
            Some(Priority::parse(value))
        };
        if let Some(priority) = self.priority_updates.take(id.into()).or_else(of_field) {
            self.prioritize(id, priority);
        }
    }

    /// Processes a PRIORITY_UPDATE frame.
    pub(super) fn on_priority_update(&mut self, stream: u64, priority: Priority) {
        if self.streams.get(&stream).is_some_and(|stream| stream.reader.has_head()) {
            self.prioritize(stream_id(stream), priority);
        } else if stream >= self.next_stream || self.streams.contains_key(&stream) {
            self.priority_updates.store(stream, priority);
        }
    }

    fn prioritize(&mut self, id: StreamId, priority: Priority) {
        let rank = rank(id, priority);
        if let Some(stream) = self.streams.get_mut(&id.into()) {
            stream.rank = rank;
        }
        // An error means that the response is complete.
        let _ = self.quic.transport().send_stream(id).set_priority(rank);
    }

    /// Continues the output of the streams that can be written, by rank: the first ones use up the
    /// window of the connection. Streams of the same rank take turns by the bytes that they have
    /// sent.
    pub(in crate::server::h3) fn write_streams(&mut self) {
        let mut writable = std::mem::take(&mut self.writable);
        if writable.len() > 1 {
            writable.sort_by_cached_key(|id| self.streams.get(id).map(turn));
        }
        for id in writable.drain(..) {
            self.on_writable(id);
        }
        self.writable = writable;
    }
}

/// Returns the sort key of a stream that can be written.
fn turn(stream: &Stream) -> (Reverse<i32>, u64) {
    (Reverse(stream.rank), stream.content_sent)
}

/// Sends the data of a unidirectional stream before all responses.
pub(super) fn precede_requests(quic: &mut Connection, id: StreamId) {
    let _ = quic.transport().send_stream(id).set_priority(i32::MAX);
}

/// Distance between the ranks of two levels of urgency.
const LEVEL: i32 = 1 << 24;

/// Returns the rank of a response for the transport, which sends higher ranks first and alternates
/// between equal ones. A response without a priority has rank 0, as urgency 3. Within a level,
/// responses that are not incremental come first, in the order of their requests (§10).
fn rank(id: StreamId, priority: Priority) -> i32 {
    let level = (3 - i32::from(priority.urgency)) * LEVEL;
    if priority.is_incremental {
        return level;
    }
    let index = i32::try_from(id.index()).unwrap_or(i32::MAX).min(LEVEL / 2);
    level + LEVEL - 1 - index
}

#[cfg(test)]
mod tests {
    use quinn_proto::{Dir, Side};

    use super::*;

    #[test]
    fn urgent_responses_precede_others() {
        let rank = |index, urgency, is_incremental| {
            let id = StreamId::new(Side::Client, Dir::Bi, index);
            rank(id, Priority { urgency, is_incremental })
        };
        let descending = [
            rank(0, 0, false),
            rank(1, 0, false),
            rank(1 << 40, 0, false),
            rank(7, 0, true),
            rank(9, 1, false),
            rank(0, 3, false),
            rank(0, 3, true),
            rank(0, 4, false),
            rank(0, 7, false),
            rank(0, 7, true),
        ];
        assert!(descending.is_sorted_by(|before, behind| before > behind), "{descending:?}");
        assert_eq!(rank(5, 3, true), 0);
        assert_eq!(rank(5, 7, true), rank(6, 7, true));
    }

    #[test]
    fn streams_of_a_rank_take_turns_behind_higher_ranks() {
        let stream = |rank, content_sent| {
            let mut stream = Stream::new(0);
            (stream.rank, stream.content_sent) = (rank, content_sent);
            stream
        };
        let in_order = [stream(5, 900), stream(0, 10), stream(0, 20), stream(-5, 0)];
        assert!(in_order.iter().map(turn).is_sorted());
        assert!(turn(&stream(0, 20)) > turn(&stream(0, 10)));
    }

    #[test]
    fn pending_updates_are_bounded_and_replaced() {
        let mut updates = PriorityUpdates::default();
        let urgency = |urgency| Priority { urgency, is_incremental: false };
        for stream in 0..20 {
            updates.store(4 * stream, urgency(1));
        }
        updates.store(4 * 19, urgency(2));
        assert_eq!(updates.pending.len(), MAX_PENDING);
        assert_eq!(updates.take(4 * 3), None);
        assert_eq!(updates.take(4 * 4), Some(urgency(1)));
        assert_eq!(updates.take(4 * 19), Some(urgency(2)));
        assert_eq!(updates.take(4 * 19), None);
    }
}
