//! Parser for the response of an upstream, in the protocol of that upstream.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weft::Method;
use weft_proto::http1::client::{self as http1, BodyPiece, ResponseHead};

use crate::connect::upstream::Upstream;
use crate::gateway_error::GatewayError;
use crate::script::protocol as scripts;
use crate::settings::proxy_settings::{ProxySettings, UpstreamProtocol};

/// Incremental parser for the head of a response, and the interim responses before it.
#[allow(
    clippy::large_enum_variant,
    reason = "a box would cost each request over HTTP an allocation"
)]
pub(crate) enum HeadReader {
    Http1(http1::HeadReader),
    Script(Box<scripts::ResponseReader>),
}

/// Incremental parser for the body of a response.
pub(crate) enum BodyReader {
    Http1(http1::BodyReader),
    Script(Box<scripts::ResponseReader>),
}

impl HeadReader {
    pub(crate) fn new(settings: &ProxySettings, upstream: &Arc<Upstream>) -> HeadReader {
        match settings.protocol {
            UpstreamProtocol::Http1 => HeadReader::Http1(
                http1::HeadReader::new(settings.max_response_head_bytes)
                    .lenient(settings.lenient_responses),
            ),
            UpstreamProtocol::FastCgi | UpstreamProtocol::Scgi | UpstreamProtocol::Uwsgi => {
                let reader = scripts::ResponseReader::new(settings, upstream.clone());
                HeadReader::Script(Box::new(reader))
            }
        }
    }

    /// Splits a head off the start of `input` if it is complete.
    pub(crate) fn read(
        &mut self,
        input: &mut BytesMut,
        method: &Method,
    ) -> Result<Option<ResponseHead>, GatewayError> {
        match self {
            HeadReader::Http1(reader) => {
                reader.read(input, method).map_err(GatewayError::invalid_response)
            }
            HeadReader::Script(reader) => reader.read_head(input, method),
        }
    }

    /// Returns true if a part of a head has been split off the input.
    pub(crate) fn has_begun(&self) -> bool {
        match self {
            HeadReader::Http1(_) => false,
            HeadReader::Script(reader) => reader.has_begun(),
        }
    }

    /// Returns the parser for the body that follows `head`.
    pub(crate) fn into_body_reader(self, head: &ResponseHead) -> BodyReader {
        match self {
            HeadReader::Http1(_) => BodyReader::Http1(http1::BodyReader::new(head.length)),
            HeadReader::Script(reader) => BodyReader::Script(reader),
        }
    }
}

impl BodyReader {
    /// Splits the next piece of the body off the start of `input`.
    pub(crate) fn read(&mut self, input: &mut BytesMut) -> Result<BodyPiece, String> {
        match self {
            BodyReader::Http1(reader) => {
                reader.read(input).map_err(|error| error.reason().to_owned())
            }
            BodyReader::Script(reader) => reader.read_body(input).map_err(|error| error.reason()),
        }
    }

    /// Takes the whole body if it has already been received.
    pub(crate) fn take_received_body(&mut self, input: &mut BytesMut) -> Option<Bytes> {
        match self {
            BodyReader::Http1(reader) => {
                if (input.len() as u64) < reader.remaining()? {
                    return None;
                }
                Some(match reader.read(input) {
                    Ok(BodyPiece::Data(bytes)) => bytes,
                    _ => Bytes::new(),
                })
            }
            BodyReader::Script(reader) => reader.take_received_body(input),
        }
    }

    /// Returns the number of remaining bytes, if known: 0 at the end.
    pub(crate) fn remaining(&self) -> Option<u64> {
        match self {
            BodyReader::Http1(reader) => reader.remaining(),
            BodyReader::Script(reader) => reader.remaining(),
        }
    }

    /// Returns the number of bytes of the body that have been split off the input, but not read.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            BodyReader::Http1(_) => 0,
            BodyReader::Script(reader) => reader.held_bytes(),
        }
    }

    /// Returns true if the body is complete when the connection ends at this point.
    pub(crate) fn may_end_at_eof(&self) -> bool {
        match self {
            BodyReader::Http1(reader) => reader.may_end_at_eof(),
            BodyReader::Script(reader) => reader.may_end_at_eof(),
        }
    }

    /// Returns true if nothing of this response can follow, as the next request on the connection
    /// requires.
    pub(crate) fn has_ended(&mut self, input: &mut BytesMut) -> bool {
        match self {
            BodyReader::Http1(_) => true,
            BodyReader::Script(reader) => reader.has_ended(input),
        }
    }
}
