//! The content that a response waits for, or holds.

use weft_proto::http2::frame::MAX_FRAME_PAYLOAD;

/// Maximum size of a piece of a file: one frame, or several if the stream has sent some, and no
/// other stream has content. The first of many responses is alone, too, when it begins.
pub(super) const FILE_PIECE_BYTES: usize = MAX_FRAME_PAYLOAD;
pub(super) const LONE_FILE_PIECE_BYTES: usize = 4 * MAX_FRAME_PAYLOAD;

/// Minimum size of a piece of a file. Without it, a client that opens its windows byte by byte
/// would cause as many reads. The surplus counts as obtained ahead.
pub(super) const MIN_FILE_PIECE_BYTES: usize = 1 << 10;

/// Window from which a body may produce a frame although the budget is used up, unless its last
/// frame was smaller. The size of the frame is not known in advance. Clients open a window again
/// when half of it is used, and most windows are 65,535 bytes or more.
pub(super) const FRAME_WINDOW: usize = 32_767;

/// The next piece of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// A file, with this number of remaining bytes.
    File(u64),
    /// A body that produces frames of any size. The next one is expected to need this window.
    Frame(usize),
}

impl Demand {
    /// Returns true if the next piece may need no window: it may be the end of a body.
    pub(super) fn may_be_empty(self) -> bool {
        matches!(self, Demand::Frame(_))
    }

    /// The window that is worth a piece.
    pub(super) fn full_window(self) -> usize {
        match self {
            Demand::File(remaining) => MIN_FILE_PIECE_BYTES.min(saturate(remaining)),
            Demand::Frame(window) => window,
        }
    }

    /// The lane of a stream with this window; `None` if nothing can be obtained for it.
    pub(super) fn lane(self, window: usize) -> Option<Lane> {
        match self {
            _ if window >= self.full_window() => Some(Lane::Wide),
            Demand::File(_) if window == 0 => None,
            _ => Some(Lane::Narrow),
        }
    }

    /// The number of bytes to read from a file for `credit` bytes of the windows.
    pub(super) fn piece(self, credit: usize, is_alone: bool) -> usize {
        match self {
            Demand::File(remaining) => {
                let max = if is_alone { LONE_FILE_PIECE_BYTES } else { FILE_PIECE_BYTES };
                credit.clamp(MIN_FILE_PIECE_BYTES, max).min(saturate(remaining))
            }
            Demand::Frame(_) => 0,
        }
    }
}

fn saturate(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// A queue of streams that wait for their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Wide,
    Narrow,
}

/// The content of a stream that is waited for, or counts against a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Holding {
    #[default]
    Nothing,
    /// Waits for its turn, in a lane unless the window is closed.
    Waiting(Demand, Option<Lane>),
    /// A piece is being read.
    Reading(Obtained),
    /// Content was obtained ahead and is not framed.
    Ahead(Obtained),
    /// This number of bytes of small content is not framed.
    Small(usize),
}

/// Content of a stream that waits to be framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Obtained {
    pub(super) bytes: usize,
    /// Number of bytes that the window of the stream permits to send. They will use as much of the
    /// window of the connection.
    pub(super) claim: usize,
}

impl Obtained {
    /// Content of a stream with this window.
    pub(super) fn new(bytes: usize, window: usize) -> Obtained {
        Obtained { bytes, claim: bytes.min(window) }
    }
}
