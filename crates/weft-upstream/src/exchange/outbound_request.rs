//! A request while it is forwarded.

use weft::Request;

use super::upload::Upload;
use super::upstream_wait::UpstreamWait;
use crate::head::forwarded_request::RequestOptions;
use crate::script::ScriptCall;

/// A request while it is forwarded.
pub(crate) struct OutboundRequest {
    /// The request. Its body moves to `upload`.
    pub(crate) request: Request,
    pub(crate) options: RequestOptions,
    /// Length of the body, if known.
    pub(crate) body_length: Option<u64>,
    /// The script that handles the request, for FastCGI.
    pub(crate) script: Option<Box<ScriptCall>>,
    /// `None` if there is no body.
    pub(crate) upload: Option<Box<Upload>>,
    /// Time for which the current attempt has waited for the upstream.
    pub(crate) wait: UpstreamWait,
}

impl OutboundRequest {
    pub(crate) fn new(mut request: Request, script: Option<Box<ScriptCall>>) -> OutboundRequest {
        let body_length = request.body().length();
        let options = RequestOptions::new(&request, body_length);
        let wait = UpstreamWait::default();
        OutboundRequest { request, options, body_length, script, upload: None, wait }
    }

    /// Returns true if the request may be sent again after the upstream has not processed it. The
    /// body of the next attempt begins with what was sent in this one.
    pub(crate) fn rewind(&mut self) -> bool {
        self.upload.as_mut().is_none_or(|upload| upload.rewind())
    }

    /// Notes that all of the request was sent.
    pub(crate) fn set_sent(&self) {
        if let Some(call) = &self.script {
            call.is_sent.set();
        }
    }

    /// Returns true if the request may be sent again after a response (RFC 9110 §9.2.2).
    pub(crate) fn is_retryable(&self) -> bool {
        self.request.method().is_idempotent() && self.upload.is_none()
    }

    /// Acts as [`rewind`](Self::rewind) if the request may be sent again although the upstream may
    /// have processed it.
    pub(crate) fn rewind_if_idempotent(&mut self) -> bool {
        self.request.method().is_idempotent() && self.rewind()
    }

    /// Keeps the beginning of the body if another attempt would need it.
    pub(crate) fn record_for_retry(&mut self) {
        if let Some(upload) = &mut self.upload
            && self.request.method().is_idempotent()
        {
            upload.record_for_retry();
        }
    }
}
