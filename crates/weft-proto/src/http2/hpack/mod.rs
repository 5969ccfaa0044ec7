//! HPACK field compression (RFC 7541). Pure.
//!
//! ```
//! use http::StatusCode;
//! use weft_proto::http2::hpack::{Decoder, Encoder, Indexing};
//!
//! let (mut encoder, mut block) = (Encoder::new(), Vec::new());
//! encoder.begin(&mut block);
//! encoder.status(&mut block, StatusCode::OK);
//! encoder.field(&mut block, (b"server", b"weft"), Indexing::Immediate);
//!
//! let mut fields = Vec::new();
//! Decoder::new().decode(&block, |field| {
//!     fields.push((field.name.to_vec(), field.value.to_vec()));
//!     true
//! })?;
//! assert_eq!(fields[0], (b":status".to_vec(), b"200".to_vec()));
//! assert_eq!(fields[1], (b"server".to_vec(), b"weft".to_vec()));
//!
//! // The second time, the field is an index of one byte.
//! block.clear();
//! encoder.field(&mut block, (b"server", b"weft"), Indexing::Immediate);
//! assert_eq!(block, [0x80 | 62]);
//! # Ok::<(), weft_proto::http2::hpack::DecodeError>(())
//! ```

mod decode; // field blocks to fields
mod encode; // fields to field blocks
mod table; // the static and the dynamic table

pub use self::decode::Decoder;
pub use self::encode::{Encoder, Indexing};
pub use crate::field_coding::field_class::{FieldClass, Name};
pub use crate::field_coding::{DecodeError, Field};
