//! QPACK field compression (RFC 9204), with the static table only. Pure.
//!
//! The capacity of both dynamic tables is 0, its default, so that no field section waits for
//! another stream.
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
//! Decoder::default().decode(&block, |field| {
//!     fields.push((field.name.to_vec(), field.value.to_vec()));
//!     true
//! })?;
//! assert_eq!(fields[1], (b"server".to_vec(), b"weft".to_vec()));
//! # Ok::<(), weft_proto::http3::qpack::DecodeError>(())
//! ```

mod decode; // field sections to fields
mod encode; // fields to field sections
mod instructions; // streams of the peer's encoder and decoder
mod static_table; // the static table

pub use self::decode::Decoder;
pub use self::encode::Encoder;
pub use self::instructions::{DecoderInstructions, EncoderInstructions};
pub use crate::field_coding::field_class::{FieldClass, Name};
pub use crate::field_coding::{DecodeError, Field};
