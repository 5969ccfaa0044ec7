//! QPACK field compression (RFC 9204). Pure.
//!
//! The decoder has a dynamic table within limits. The encoder uses the static table only, so that
//! no response waits for another stream.
//!
//! ```
//! use http::StatusCode;
//! use weft_proto::http3::qpack::{Decoder, Encoder};
//!
//! let mut block = Vec::new();
//! let encoder = Encoder;
//! encoder.begin(&mut block);
//! encoder.status(&mut block, StatusCode::OK);
//! encoder.field(&mut block, (b"server", b"weft"), false);
//! assert_eq!(block, b"\x00\x00\xd9\x5f\x4d\x04weft");
//!
//! let mut fields = Vec::new();
//! Decoder::default().decode(0, &block, |field| {
//!     fields.push((field.name.to_vec(), field.value.to_vec()));
//!     true
//! })?;
//! assert_eq!(fields[1], (b"server".to_vec(), b"weft".to_vec()));
//! # Ok::<(), weft_proto::http3::qpack::DecodeError>(())
//! ```

mod decode; // field sections to fields
mod decoder_stream; // instructions of the peer's decoder
mod encode; // fields to field sections
mod encoder_stream; // insertions by the peer's encoder
mod feedback; // instructions to the peer's encoder
mod static_table; // the static table
mod table; // the dynamic table of a decoder

pub use self::decode::{Decoded, Decoder};
pub use self::decoder_stream::DecoderInstructions;
pub use self::encode::Encoder;
pub use self::encoder_stream::TableWork;
pub use crate::field_coding::field_class::{FieldClass, Name};
pub use crate::field_coding::{DecodeError, Field};
