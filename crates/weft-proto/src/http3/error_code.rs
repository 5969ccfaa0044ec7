//! Error codes of HTTP/3 (RFC 9114 §8.1) and QPACK (RFC 9204 §6).

use std::fmt;

/// An error code of a stream or a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode(pub u64);

impl ErrorCode {
    /// No error: a graceful end.
    pub const NO_ERROR: ErrorCode = ErrorCode(0x100);
    /// A violation that no other code describes.
    pub const GENERAL_PROTOCOL_ERROR: ErrorCode = ErrorCode(0x101);
    /// A failure of the endpoint itself.
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(0x102);
    /// A stream that the endpoint does not accept.
    pub const STREAM_CREATION_ERROR: ErrorCode = ErrorCode(0x103);
    /// The end of a stream that the connection requires.
    pub const CLOSED_CRITICAL_STREAM: ErrorCode = ErrorCode(0x104);
    /// A frame that is not permitted in its place.
    pub const FRAME_UNEXPECTED: ErrorCode = ErrorCode(0x105);
    /// A frame whose layout or size is invalid.
    pub const FRAME_ERROR: ErrorCode = ErrorCode(0x106);
    /// Excessive load caused by the peer.
    pub const EXCESSIVE_LOAD: ErrorCode = ErrorCode(0x107);
    /// An identifier that is not permitted.
    pub const ID_ERROR: ErrorCode = ErrorCode(0x108);
    /// An invalid SETTINGS frame.
    pub const SETTINGS_ERROR: ErrorCode = ErrorCode(0x109);
    /// A control stream that does not begin with SETTINGS.
    pub const MISSING_SETTINGS: ErrorCode = ErrorCode(0x10a);
    /// A request that was not processed: it can be repeated safely.
    pub const REQUEST_REJECTED: ErrorCode = ErrorCode(0x10b);
    /// A request or response that is no longer needed.
    pub const REQUEST_CANCELLED: ErrorCode = ErrorCode(0x10c);
    /// The end of a stream before a complete request.
    pub const REQUEST_INCOMPLETE: ErrorCode = ErrorCode(0x10d);
    /// A malformed message.
    pub const MESSAGE_ERROR: ErrorCode = ErrorCode(0x10e);
    /// A field section that cannot be decoded.
    pub const QPACK_DECOMPRESSION_FAILED: ErrorCode = ErrorCode(0x200);
    /// An invalid instruction of the encoder stream.
    pub const QPACK_ENCODER_STREAM_ERROR: ErrorCode = ErrorCode(0x201);
    /// An invalid instruction of the decoder stream.
    pub const QPACK_DECODER_STREAM_ERROR: ErrorCode = ErrorCode(0x202);
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ErrorCode({:#x})", self.0)
    }
}
