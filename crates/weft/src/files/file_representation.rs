//! The content and the header fields of a response with a file.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_ENCODING, ETAG};

use crate::clock::wall;
use crate::compression::Coding;
use crate::disk::{File, Source};
use crate::error::Result;
use crate::files::entity_tag;
use crate::message::body::Body;
use crate::message::fields::Fields;
use crate::message::payload::Payload;
use crate::message::representation::{ResponseContext, complete_file_response};
use crate::message::request_head::RequestHead;
use crate::message::response::Response;

/// The content and the header fields of a response.
#[derive(Clone, Debug)]
pub(super) struct Representation {
    pub(super) file: Arc<File>,
    pub(super) fields: Fields,
    /// Set if the file had not [settled](FileVersion::is_settled) when it was opened.
    pub(super) recently_changed: bool,
}

impl Representation {
    pub(super) fn to_response(&self) -> Response {
        Response::success(self.fields.clone(), Payload::File(self.file.clone()))
    }

    /// Returns the open file or the contents.
    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Length of the content in bytes.
    pub(super) fn length(&self) -> u64 {
        self.file.length
    }

    /// Returns a response with the fields of this representation in a content coding. The validator
    /// is weak because another version or level of the encoder may produce other bytes (RFC 9110
    /// §8.8.1).
    fn to_coded_response(&self, coding: Coding) -> Response {
        let mut response = self.to_response();
        if let Some(tag) = response.header(ETAG.as_str()).map(entity_tag::weak) {
            response.set_header(ETAG, tag);
        }
        response.set_header(CONTENT_ENCODING, coding.token());
        response
    }

    /// Returns the response to a `HEAD` for this representation in a content coding, without a
    /// length: that is known only after the compression.
    pub(super) fn coded_head(&self, head: &RequestHead, coding: Coding) -> Response {
        // The engine evaluates preconditions only for files. A range does not apply to HEAD, so
        // there is no multipart response, and no boundary.
        let context = ResponseContext { now: wall::now(), boundary: String::new };
        let response = self.to_coded_response(coding);
        let mut response = complete_file_response(head, response, &context);
        if matches!(response.payload, Payload::File(_)) {
            response.payload = Payload::Body(Body::stream(stream::empty::<Result<Bytes>>()));
        }
        response
    }

    /// Returns this representation in a content coding, with the compressed `bytes`.
    pub(super) fn with_coding(&self, coding: Coding, bytes: Bytes) -> Representation {
        let response = self.to_coded_response(coding);
        let length = bytes.len() as u64;
        let source = Source::Memory(bytes);
        let file = Arc::new(File { source, start: 0, length, ..File::clone(&self.file) });
        // The fields of a recently changed file are not complete: each response adds its own.
        let fields = match &self.fields {
            Fields::Preserialized(_) => response.headers.preserialize(),
            Fields::Owned(_) | Fields::Static(_) | Fields::Forwarded(_) => response.headers,
        };
        Representation { file, fields, recently_changed: self.recently_changed }
    }
}
