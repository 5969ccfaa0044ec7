//! A field block that is not received completely.

/// A field block that is split over several frames.
pub(super) struct HeaderBlock {
    pub(super) opening: BlockOpening,
    pub(super) bytes: Vec<u8>,
    pub(super) continuations: usize,
}

/// Properties of the HEADERS frame of a field block.
#[derive(Clone, Copy)]
pub(super) struct BlockOpening {
    pub(super) stream: u32,
    pub(super) ends: bool,
    pub(super) depends_on_itself: bool,
}

impl HeaderBlock {
    pub(super) fn stream(&self) -> u32 {
        self.opening.stream
    }
}
