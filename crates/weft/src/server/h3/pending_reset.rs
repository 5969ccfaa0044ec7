//! Resets that wait for the delivery of earlier output.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use weft_proto::http3::ErrorCode;

/// A reset that waits for the delivery of earlier output.
pub(super) struct PendingReset {
    pub(super) code: ErrorCode,
    is_delivered: Arc<AtomicBool>,
}

/// A frame of a reserved type, which has no effect (RFC 9114 §7.2.8). The transport drops it when
/// the client has acknowledged it, and all output before it.
struct DeliveryMark(Arc<AtomicBool>);

const RESERVED_FRAME: &[u8] = &[0x21, 0];

impl AsRef<[u8]> for DeliveryMark {
    fn as_ref(&self) -> &[u8] {
        RESERVED_FRAME
    }
}

impl Drop for DeliveryMark {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl PendingReset {
    /// Creates a reset, and the frame whose delivery it waits for.
    pub(super) fn new(code: ErrorCode) -> (PendingReset, Bytes) {
        let mark = Arc::new(AtomicBool::new(false));
        let frame = Bytes::from_owner(DeliveryMark(mark.clone()));
        (PendingReset { code, is_delivered: mark }, frame)
    }

    /// Returns true if the client has received the earlier output.
    pub(super) fn is_due(&self) -> bool {
        self.is_delivered.load(Relaxed)
    }
}
