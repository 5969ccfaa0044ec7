//! One attempt to send a request over a connection, and the response for the client.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft::{Body, Error, Method, Request, Response, StatusCode};
use weft_proto::http1::client::ResponseHead;

use super::download::{Download, EmptyOfUnknownLength};
use super::exchange;
use super::exchange::OutboundRequest;
use super::response_reader::BodyReader;
use crate::attempt_hooks;
use crate::gateway_error::GatewayError;
use crate::head::forwarded_request::{Destination, ForwardedRequest};
use crate::head::forwarded_response as response;
use crate::head::rewritten_fields::{Origin, RewrittenFields};
use crate::pool::client_limit::Client;
use crate::pool::connection_pool::{Lease, Leased, Pool};
use crate::pool::upstream_metrics::RetryReason;
use crate::proxy::upstream_wait::UpstreamWait;
use crate::proxy::{ReverseProxy, Shared, tunnel};
use crate::script::protocol as scripts;
use crate::spool::{Reservation, Spool};

impl ReverseProxy {
    /// Sends a request over one connection and converts the upstream's response. A retry uses no idle
    /// connection.
    ///
    /// Without `async`, the future contains each argument once.
    pub(crate) fn attempt(
        &self,
        pool: &Arc<Pool>,
        outbound: &mut OutboundRequest,
        retry: Option<RetryReason>,
    ) -> impl Future<Output = Result<Response, GatewayError>> {
        if let Some(hooks) = attempt_hooks::of(&outbound.request) {
            hooks.begin_attempt(&pool.upstream_name);
        }
        outbound.wait = UpstreamWait::new(self.shared.settings.failure_latency);
        async move {
            // In a block, so that the wait for a connection takes no space beside the rest.
            let leased = {
                let client = self.limited_client(&outbound.request);
                let mut queue_time = Duration::ZERO;
                let leased = pool.lease(client, retry.is_some(), &mut queue_time).await;
                if !queue_time.is_zero() {
                    note_queue_time(pool, &outbound.request, queue_time);
                }
                leased
            };
            let mut lease = match leased {
                Ok(Leased::Connection(lease)) => lease,
                // Boxed: the future is large.
                Ok(Leased::Stream(lease)) => {
                    return Box::pin(self.attempt_in_stream(pool, *lease, outbound, retry)).await;
                }
                Err(error) => return Err(error),
            };
            if let Some(hooks) = attempt_hooks::of(&outbound.request) {
                hooks.on_connection(lease.connection.address);
            }
            if let Err(error) = self.compose(pool, lease.connection.output.tail(), outbound) {
                lease.connection.output.tail().clear();
                lease.return_to_pool();
                return Err(GatewayError::Client(error));
            }
            let sent_request = pool.metrics.get().map(|metrics| metrics.start_request(retry));
            let Shared { settings, buffer_space, .. } = &*self.shared;
            let received = exchange::run(&mut lease, outbound, settings, buffer_space).await?;
            if let Some(sent_request) = sent_request {
                sent_request.record_response();
            }
            self.respond_with(pool, lease, outbound, received)
        }
    }

    /// Converts the response of an upstream.
    fn respond_with(
        &self,
        pool: &Pool,
        lease: Lease,
        outbound: &mut OutboundRequest,
        (head, body): (ResponseHead, BodyReader),
    ) -> Result<Response, GatewayError> {
        let settings = &self.shared.settings;
        let latency = outbound.wait.elapsed();
        if let Some(hooks) = attempt_hooks::of(&outbound.request) {
            hooks.on_status(head.status);
        }
        let status = head.status;
        let response = match status {
            StatusCode::SWITCHING_PROTOCOLS => self.start_tunnel(lease, outbound, head)?,
            _ => {
                let (upstream, mount) = (&pool.upstream.url, outbound.request.mount());
                let rewritten = RewrittenFields::new(&head, settings, &Origin { upstream, mount });
                rewritten.apply(self.forward_response(lease, outbound, head, body))
            }
        };
        self.record_response(pool, status, latency);
        Ok(response)
    }

    /// Appends the head of a request in the protocol of the upstream, or the variables for a script.
    fn compose(
        &self,
        pool: &Pool,
        out: &mut Vec<u8>,
        outbound: &OutboundRequest,
    ) -> Result<(), Error> {
        let OutboundRequest { request, options, body_length, script, .. } = outbound;
        let settings = &*self.shared.settings;
        match script {
            Some(call) => {
                let environment = &self.shared.environment;
                let application = scripts::Application { settings, environment };
                scripts::compose(out, request, &call.script, *body_length, &application)
            }
            None => {
                let (upstream, via) = (&pool.upstream.url, self.shared.via.as_ref());
                let to = Destination { upstream, settings, via };
                ForwardedRequest::new(request, to).compose(out, options, *body_length)
            }
        }
    }

    /// Returns the client that a connection and buffered bodies are counted for; `None` for one
    /// without a limit of its own.
    pub(crate) fn limited_client(&self, request: &Request) -> Option<Client> {
        let address = request.peer().address()?;
        let mut trusted = self.shared.settings.trusted().iter();
        let is_trusted = trusted.any(|network| network.contains(address.ip()));
        (!is_trusted).then(|| Client::of_peer(&address))
    }

    /// Converts the upstream's response to the response for the client.
    fn forward_response(
        &self,
        lease: Lease,
        outbound: &mut OutboundRequest,
        head: ResponseHead,
        body: BodyReader,
    ) -> Response {
        let settings = &self.shared.settings;
        let mut upload = outbound.upload.take();
        if let Some(upload) = &mut upload
            && (head.status.is_client_error() || head.status.is_server_error())
        {
            // RFC 9112 §9.5: after an error response the rest of the request body is not sent.
            upload.stop();
        }
        let has_unknown_length = *outbound.request.method() == Method::HEAD
            && head.headers.get_bytes("content-length").is_none();
        let hooks = attempt_hooks::of(&outbound.request).cloned();
        let mut download = Download::new(&head, body, lease, upload, settings.body_timeout, hooks);
        let client = || self.limited_client(&outbound.request);
        let limits = &self.response_limits;
        let reserve = |body, held| Reservation::new(body, held, limits, client());
        let body = match download.take_received_body(reserve) {
            Some(_) if has_unknown_length => Body::from_http_body(EmptyOfUnknownLength),
            Some(bytes) => bytes.into(),
            None if response::is_event_stream(&head) => {
                Body::from_http_body(download.with_idle_timeout(settings.tunnel_timeout))
            }
            None if settings.buffer_responses && !response::refuses_buffering(&head) => {
                let spool = Spool::new(Bytes::new(), download, limits, client());
                spool.receive_available().into_body()
            }
            None => Body::from_http_body(download),
        };
        response::apply_head(head, Response::body(body), self.shared.via.as_ref())
    }

    /// Connects client and upstream after a 101 (Switching Protocols).
    fn start_tunnel(
        &self,
        lease: Lease,
        outbound: &OutboundRequest,
        head: ResponseHead,
    ) -> Result<Response, GatewayError> {
        let settings = &self.shared.settings;
        let is_requested = |protocol: &str| {
            let requested =
                outbound.options.upgrade.as_deref().unwrap_or_default().split(|&b| b == b',');
            requested
                .map(<[u8]>::trim_ascii)
                .any(|name| name.eq_ignore_ascii_case(protocol.as_bytes()))
        };
        let Some(protocol) = head.headers.get("upgrade").filter(|protocol| is_requested(protocol))
        else {
            let reason = "it switches to a protocol that the client did not request";
            return Err(GatewayError::invalid_response(reason));
        };
        let idle_timeout = settings.tunnel_timeout;
        let response = Response::upgrade(protocol, async move |client| {
            tunnel::run(client, lease, idle_timeout).await;
        });
        Ok(response::apply_head(head, response, self.shared.via.as_ref()))
    }
}

/// Records the time for which a request has waited for a connection.
fn note_queue_time(pool: &Pool, request: &Request, time: Duration) {
    if let Some(metrics) = pool.metrics.get() {
        metrics.record_queue_time(time);
    }
    if let Some(hooks) = attempt_hooks::of(request) {
        hooks.on_queue_time(time);
    }
}
