//! Services of tonic on Weft, with the clients of tonic and with those of others.

mod calls; // calls of each kind, gRPC-Web, silence
mod common;
mod interop; // the interoperability tests of gRPC
mod introspection; // health and reflection
#[rustfmt::skip]
mod testing; // generated from proto/testing.proto
