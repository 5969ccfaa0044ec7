//! The body of a request before the request is sent: it is received first and copied for the
//! mirror, or it is streamed.

use std::time::Duration;

use bytes::Bytes;
use weft::Response;

use super::mirror::{Mirror, MirrorPermit};
use super::proxy_context::WorkerContext;
use crate::exchange::outbound_request::OutboundRequest;
use crate::exchange::upload::{Framing, Upload};
use crate::gateway_error::GatewayError;
use crate::head::forwarded_request::forwarded_trailers;
use crate::head::grpc;
use crate::settings::proxy_settings::UpstreamProtocol;
use crate::spool;
use crate::spool::ReceivedBody;

/// The handling of the bodies of requests by one worker.
pub(crate) struct RequestBodies<'a> {
    pub(crate) context: &'a WorkerContext,
    pub(crate) mirror: Option<&'a Mirror>,
}

impl RequestBodies<'_> {
    /// Sends a copy of a request without a body to the mirror, if there is one.
    pub(crate) fn copy_to_mirror(&self, outbound: &OutboundRequest) {
        if let Some((mirror, permit)) = self.mirror_of(outbound) {
            mirror.send(&outbound.request, Bytes::new(), permit);
        }
    }

    /// Returns the mirror for a request, if it may get a copy now.
    fn mirror_of(&self, outbound: &OutboundRequest) -> Option<(&Mirror, MirrorPermit)> {
        let mirror = self.mirror?;
        let may_copy = outbound.script.is_none() && outbound.options.upgrade.is_none();
        may_copy.then(|| mirror.permit()).flatten().map(|permit| (mirror, permit))
    }

    /// Receives the body of a request, unless it is streamed.
    pub(crate) async fn prepare(&self, outbound: &mut OutboundRequest) -> Result<(), Response> {
        let settings = &self.context.shared.settings;
        let request = &mut outbound.request;
        request.body().set_limit(settings.max_body_bytes);
        // A script gets the length before the body (RFC 3875 §4.1.2).
        let needs_length = outbound.script.is_some() && outbound.body_length.is_none();
        // A call may have its response before the end of its request, and its client may be silent
        // between two messages.
        let is_call = grpc::is_call(request) && self.context.shared.has_http2_upstream();
        if is_call {
            request.body().set_min_rate(0, Duration::MAX);
        }
        let is_buffered = settings.buffer_requests && !is_call;
        let mirror = self.mirror_of(outbound);
        let copy = match is_buffered || needs_length {
            true => self.receive_body(outbound, needs_length, mirror.is_some()).await?,
            false => None,
        };
        match (mirror, copy) {
            (Some((mirror, permit)), Some(copy)) => mirror.send(&outbound.request, copy, permit),
            (Some((mirror, _)), None) => mirror.count_dropped(),
            (None, _) => {}
        }
        if outbound.body_length != Some(0) {
            let framing = match outbound.body_length {
                _ if settings.protocol == UpstreamProtocol::FastCgi => Framing::FastCgi,
                Some(_) => Framing::Sized,
                None => Framing::Chunked,
            };
            let expect_continue = outbound.options.expect_continue && outbound.script.is_none();
            let trailers = forwarded_trailers(&outbound.request, &settings.request_trailers);
            let body = std::mem::take(outbound.request.body());
            let upload = Upload::new(body, framing, expect_continue, trailers);
            outbound.upload = Some(Box::new(upload));
        }
        Ok(())
    }

    /// Receives the body of a request. With `needs_length`, all of it, to determine its length.
    /// Returns a copy of the body if `copies` is set and all of it is in memory.
    async fn receive_body(
        &self,
        outbound: &mut OutboundRequest,
        needs_length: bool,
        copies: bool,
    ) -> Result<Option<Bytes>, Response> {
        // The client has sent the body by then, after a 100 (Continue) if it waits for one.
        outbound.options.expect_continue = false;
        let client = self.context.shared.limited_client(&outbound.request);
        let body = std::mem::take(outbound.request.body());
        // Boxed: the future is large, and most requests have no body.
        match Box::pin(spool::receive(body, &self.context.request_limits, client, copies)).await {
            Ok(ReceivedBody { length: None, .. }) if needs_length => {
                let error = GatewayError::Overloaded("no space for a request body");
                Err(error.into_reported_response(&"a script", &outbound.request))
            }
            Ok(received) => {
                // Many servers do not decode the chunked coding: to a WSGI application, such a body
                // is empty. Only trailers need it.
                let trailers = &self.context.shared.settings.request_trailers;
                let is_chunked = received.has_trailers && !trailers.is_empty();
                *outbound.request.body() = received.body;
                if needs_length || !is_chunked {
                    outbound.body_length = received.length;
                }
                Ok(received.copy)
            }
            Err(error) => Err(GatewayError::Client(error).into_response()),
        }
    }
}
