//! Limits on the frames by which an upstream could cost much without sending content (HTTP/2).
//! Pure.
//!
//! The crate `h2` reads all frames that were received before a request sees the first of them, and
//! answers each PING and SETTINGS. So frames are counted before they get there.

use std::collections::BTreeMap;

use weft_proto::http2::frame::{FrameHeader, flag, kind};

/// Field sections of one stream: interim responses, the response, and trailers.
const MAX_FIELD_SECTIONS: u32 = 32;

/// Streams whose field sections are counted. Of more, the oldest are no longer counted.
const MAX_STREAMS: usize = 4_096;

/// Control frames that an upstream may send at once.
const MAX_CONTROL_FRAMES: u64 = 2_000;

/// Time after which another control frame is permitted, in milliseconds.
const MILLIS_PER_CONTROL_FRAME: u64 = 100;

/// Bytes sent to the upstream after which another control frame is permitted. An upstream grants
/// windows for the bodies of requests, and may measure round trips while it receives them.
const BYTES_PER_CONTROL_FRAME: u64 = 64;

/// The frames that an upstream may still send over a connection.
pub(crate) struct FrameBudget {
    field_sections: BTreeMap<u32, u32>,
    control_frames: u64,
    /// Bytes that were sent since control frames were last permitted for them.
    bytes_sent: u64,
    /// Time up to which control frames have been permitted, in milliseconds.
    permitted_until: u64,
}

impl FrameBudget {
    pub(crate) fn new() -> FrameBudget {
        FrameBudget {
            field_sections: BTreeMap::new(),
            control_frames: MAX_CONTROL_FRAMES,
            bytes_sent: 0,
            permitted_until: 0,
        }
    }

    pub(crate) fn on_sent(&mut self, bytes: usize) {
        self.bytes_sent += bytes as u64;
    }

    /// Counts a received frame; `now` is a time in milliseconds.
    ///
    /// # Errors
    /// If it is beyond a limit.
    pub(crate) fn on_frame(&mut self, header: FrameHeader, now: u64) -> Result<(), &'static str> {
        match header.kind {
            kind::DATA | kind::HEADERS if header.flags & flag::END_STREAM != 0 => {
                self.field_sections.remove(&header.stream);
                Ok(())
            }
            // `h2` limits empty DATA frames and the frames of a field section.
            kind::DATA | kind::CONTINUATION => Ok(()),
            kind::HEADERS => self.on_field_section(header.stream),
            _ => self.on_control_frame(now),
        }
    }

    fn on_field_section(&mut self, stream: u32) -> Result<(), &'static str> {
        let count = self.field_sections.entry(stream).or_default();
        *count += 1;
        if *count > MAX_FIELD_SECTIONS {
            return Err("too many interim responses");
        }
        if self.field_sections.len() > MAX_STREAMS {
            self.field_sections.pop_first();
        }
        Ok(())
    }

    fn on_control_frame(&mut self, now: u64) -> Result<(), &'static str> {
        if self.control_frames == 0 {
            self.permit(now);
        }
        self.control_frames =
            self.control_frames.checked_sub(1).ok_or("too many control frames")?;
        Ok(())
    }

    /// Permits control frames for the time and the sent bytes since the last call.
    fn permit(&mut self, now: u64) {
        let by_time = now.saturating_sub(self.permitted_until) / MILLIS_PER_CONTROL_FRAME;
        let by_bytes = self.bytes_sent / BYTES_PER_CONTROL_FRAME;
        self.permitted_until += by_time * MILLIS_PER_CONTROL_FRAME;
        self.bytes_sent %= BYTES_PER_CONTROL_FRAME;
        self.control_frames = (by_time + by_bytes).min(MAX_CONTROL_FRAMES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32) -> FrameHeader {
        FrameHeader { length: 0, kind, flags, stream }
    }

    /// Returns the number of frames, at most `count`, that are within the limits.
    fn accepted(budget: &mut FrameBudget, header: FrameHeader, now: u64, count: usize) -> usize {
        (0..count).take_while(|_| budget.on_frame(header, now).is_ok()).count()
    }

    #[test]
    fn limits_field_sections_per_stream() {
        let mut budget = FrameBudget::new();
        let head = |stream| frame(kind::HEADERS, flag::END_HEADERS, stream);
        for stream in [1, 3] {
            assert_eq!(accepted(&mut budget, head(stream), 0, 99), 32, "{stream}");
        }
        for end in [frame(kind::DATA, 1, 3), frame(kind::HEADERS, 5, 3)] {
            budget.on_frame(end, 0).unwrap();
            assert_eq!(accepted(&mut budget, head(3), 0, 99), 32, "another use of the number");
        }
        for stream in (5..20_001).step_by(2) {
            budget.on_frame(head(stream), 0).unwrap();
        }
        assert_eq!(budget.field_sections.len(), MAX_STREAMS);
    }

    #[test]
    fn limits_control_frames_by_time_and_sent_bytes() {
        let kinds =
            [kind::PING, kind::SETTINGS, kind::WINDOW_UPDATE, kind::PRIORITY, kind::RST_STREAM, 99];
        for control in kinds.map(|kind| frame(kind, 0, 0)) {
            let mut budget = FrameBudget::new();
            assert_eq!(accepted(&mut budget, control, 0, 9_999), 2_000, "{control:?}");
            assert_eq!(accepted(&mut budget, control, 99, 9), 0);
            assert_eq!(accepted(&mut budget, control, 1_000, 99), 10);
            budget.on_sent(640 + 63);
            assert_eq!(accepted(&mut budget, control, 1_000, 99), 10);
            budget.on_sent(1);
            assert_eq!(accepted(&mut budget, control, 1_000, 99), 1);
            budget.on_sent(1 << 30);
            assert_eq!(accepted(&mut budget, control, 1_000, 9_999), 2_000);
        }
        // Content needs no permission.
        for content in [frame(kind::DATA, 0, 1), frame(kind::CONTINUATION, 0, 1)] {
            assert_eq!(accepted(&mut FrameBudget::new(), content, 0, 99_999), 99_999);
        }
    }
}
