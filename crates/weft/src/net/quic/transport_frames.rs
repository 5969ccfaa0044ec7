//! Frames of the transport that carry no data. The transport processes and counts them.

use quinn_proto::FrameStats;

/// Numbers of received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransportFrames {
    /// Frames that are rare in useful connections, and cause a reaction.
    pub(crate) idle: u64,
    /// MAX_DATA and MAX_STREAM_DATA.
    pub(crate) window_updates: u64,
    /// STREAM, with data or without.
    pub(crate) stream: u64,
}

impl TransportFrames {
    /// Counts the frames of a connection since its beginning.
    pub(super) fn of(received: &FrameStats) -> TransportFrames {
        let idle = [
            received.crypto,
            received.data_blocked,
            received.immediate_ack,
            received.max_streams_bidi,
            received.max_streams_uni,
            received.new_connection_id,
            received.path_challenge,
            received.path_response,
            received.ping,
            received.reset_stream,
            received.retire_connection_id,
            received.stop_sending,
            received.stream_data_blocked,
            received.streams_blocked_bidi,
            received.streams_blocked_uni,
        ];
        TransportFrames {
            idle: idle.iter().sum(),
            window_updates: received.max_data + received.max_stream_data,
            stream: received.stream,
        }
    }

    /// Returns the frames that were received since `earlier`.
    pub(super) fn since(self, earlier: TransportFrames) -> TransportFrames {
        TransportFrames {
            idle: self.idle.saturating_sub(earlier.idle),
            window_updates: self.window_updates.saturating_sub(earlier.window_updates),
            stream: self.stream.saturating_sub(earlier.stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_without_data_are_counted() {
        let mut stats = FrameStats::default();
        (stats.ping, stats.path_challenge, stats.retire_connection_id) = (1, 2, 3);
        (stats.acks, stats.max_data, stats.stream) = (100, 4, 5);
        let counted = TransportFrames::of(&stats);
        assert_eq!(counted, TransportFrames { idle: 6, window_updates: 4, stream: 5 });
        stats.ping += 1;
        let later = TransportFrames::of(&stats).since(counted);
        assert_eq!(later, TransportFrames { idle: 1, ..TransportFrames::default() });
    }
}
