//! A reverse proxy: forwards requests to upstreams and returns their responses.
//!
//! # The path of a request
//!
//! 1. `balance` chooses one of the available upstreams (`health`).
//! 2. The body of the request is received (`apps/spool`), so that a slow client occupies no
//!    connection.
//! 3. `pool` leases a connection to the request for its exclusive use: an idle one, or a new one.
//!    Connections belong to the worker; `connection` defines one.
//! 4. `request` composes a new head from the parsed request, or `scripts` the variables for a script;
//!    `upload` sends the body, and `exchange` waits for the head of the response, which
//!    `response_reader` parses in the protocol of the upstream. Over HTTP/2, `http2` does all of
//!    this in a stream of a connection that requests share.
//! 5. A failure before the first byte of the response may be retried. Otherwise the client gets an
//!    error page (`apps/gateway`).
//! 6. `response` returns the head with the changes of `rewriting`, `download` reads the body; at the end of the body the connection
//!    returns to the pool. After a 101, `tunnel` copies between the two connections.
//!
//! All of this runs in the task of the request, except for the rest of a response that has not been
//! received together with its head: it is received in a task of its own (`apps/spool`), as fast as
//! the upstream sends it. Without buffering, `upload` and `download` stream the bodies, and no task
//! stands between the client and the upstream.

mod addresses;
mod balance;
pub(crate) mod check;
mod download;
mod exchange;
mod fetch;
mod fields;
mod forwarded;
mod grpc;
mod health;
mod hops;
mod http2;
mod latency;
mod member;
mod mirror;
mod pin;
mod pool;
mod request;
mod response;
mod response_reader;
mod rewriting;
mod scripts;
mod settings;
mod sticky;
pub(crate) mod tls;
mod metrics;
mod tunnel;
mod upload;
mod upstream;
mod url;
mod connection;
mod control;
mod operation;
mod choice;

use std::ffi::OsString;
use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{Either, FutureExt, LocalBoxFuture};
use http_body::Body as _;
use weft::middleware::GrpcWeb;
use weft::{Application, Body, Error, Method, Middleware, Request, Response, StatusCode};
use weft_proto::http1::client::ResponseHead;

#[allow(unused_imports, reason = "the tests of the proxy do not use it")]
pub(crate) use self::balance::{Balancer, Candidate, Share};
pub(crate) use self::connection::UpstreamConnection;
#[allow(unused_imports, reason = "the tests of the proxy do not use it")]
pub(crate) use self::control::{ControlChange, UpstreamMode};
use self::download::{Download, EmptyOfUnknownLength};
use self::exchange::OutboundRequest;
pub(crate) use self::fetch::{OwnRequest, OwnResponse, RemoteResource, RemoteServer};
pub(crate) use self::fields::may_permit_in_request_trailers;
pub(crate) use self::health::{Availability, FailurePolicy, Health};
use self::hops::Via;
use self::latency::UpstreamWait;
#[allow(unused_imports, reason = "the tests of the proxy do not use it")]
pub(crate) use self::member::{MAX_WEIGHT, UpstreamMember};
use self::metrics::{RetryReason, UpstreamMetrics};
pub(crate) use self::metrics::{State, UpstreamReport};
#[allow(unused_imports, reason = "the tests of the proxy do not use it")]
pub(crate) use self::mirror::MirrorSettings;
use self::mirror::{Mirror, MirrorPermit};
use self::pool::{Lease, Leased, Pool};
use self::request::{Destination, ForwardedRequest, RequestOptions};
use self::response_reader::BodyReader;
use self::rewriting::Origin;
pub(crate) use self::rewriting::Replacement;
pub(crate) use self::scripts::ScriptCall;
pub(crate) use self::settings::{
    Balance, Check, CheckTarget, ClientCert, FastCgiSettings, ForwardedNames, Host, HttpVersion,
    Protocol, ProxySettings,
};
use self::sticky::Sticky;
use self::upload::{Framing, Upload};
pub(crate) use self::upstream::Upstream;
pub(crate) use self::url::UpstreamUrl;
use super::client_limit::Client;
use super::gateway::GatewayError;
use super::script::Variable;
use super::spool::{self, BufferSpace, ReceivedBody, Spool, SpoolLimits};
use super::timer::InactivityTimer;
use crate::base::rendezvous::hash;
use crate::base::request_notes::RequestNotes;
use crate::base::throttled_log::ThrottledWarning;

/// An application that forwards requests to upstreams. Each clone has its own connections (one
/// clone per worker); the health of the upstreams is shared.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    pools: Vec<Arc<Pool>>,
    balancer: Balancer,
    /// Returns the key by which a request is hashed; empty: it has none.
    hash_key: HashKey,
    /// Copies of requests for another server.
    mirror: Option<Mirror>,
    /// Limits of buffered bodies. Each worker has its own, so that their reference counts are not
    /// shared.
    request_limits: Arc<SpoolLimits>,
    response_limits: Arc<SpoolLimits>,
}

/// Function that returns the key of a request; empty: it has none.
pub(crate) type HashKey = Arc<dyn Fn(&Request) -> String + Send + Sync>;

struct Shared {
    settings: Arc<ProxySettings>,
    upstreams: Vec<Arc<Upstream>>,
    /// Set by the first request, which starts the health checks: there is no event loop earlier.
    checks_started: AtomicBool,
    /// Logged if no upstream is available for a request.
    no_upstream_warning: ThrottledWarning,
    via: Option<Via>,
    sticky: Option<Sticky>,
    buffer_space: Arc<BufferSpace>,
    /// Configured variables for scripts.
    environment: Vec<(String, OsString)>,
    /// The proxy for copies of requests, from which each worker has its own.
    mirror: Option<Proxy>,
    /// Pools of the clones that collect metrics.
    counted_pools: Mutex<Vec<Weak<Pool>>>,
}

impl Shared {
    fn has_http2_upstream(&self) -> bool {
        self.upstreams.iter().any(|upstream| upstream.http_version != HttpVersion::Http1)
    }
}

impl Proxy {
    /// Returns true if all upstreams have a path in their URL.
    pub(crate) fn has_path(&self) -> bool {
        self.shared.settings.urls().all(UpstreamUrl::has_path)
    }

    /// Creates a proxy whose clones share the health of the upstreams. Buffered bodies are stored in
    /// `buffer_space`.
    ///
    /// # Errors
    /// If a setting is invalid, or certificates cannot be read.
    pub(crate) fn new(
        settings: ProxySettings,
        buffer_space: Arc<BufferSpace>,
    ) -> Result<Proxy, String> {
        settings.validate()?;
        let tls = match settings.has_tls_upstream() {
            true => {
                let own = settings.client_identity();
                let (ca, pins) = (settings.ca.as_deref(), &settings.tls_pin);
                Some(tls::config(ca, own.as_ref(), pins, settings.http_version)?)
            }
            false => None,
        };
        let policy = FailurePolicy {
            max_failures: settings.max_failures,
            window: settings.failure_window,
            down_time: settings.down_time,
            slow_start: settings.slow_start,
        };
        let upstream = |member: &UpstreamMember| {
            let url = &member.url;
            let health = Health::new(policy, Instant::now());
            let http_version = settings.http_version_of(url);
            let name = settings.tls_name.as_deref();
            let upstream = Upstream::new(url.clone(), health, &tls)?.with_server_name(name)?;
            Ok(Arc::new(upstream.with_http_version(http_version).with_weight(member.weight)))
        };
        let upstreams = settings.upstreams.iter().map(upstream);
        let upstreams: Vec<_> = upstreams.collect::<Result<_, String>>()?;
        let sticky = Sticky::new(&settings.sticky, settings.upstreams.iter().map(|it| &it.url))?;
        let mirror = settings.mirror.proxy_settings(&settings);
        let mirror = mirror.map(|settings| Proxy::new(settings, buffer_space.clone()));
        let shared = Arc::new(Shared {
            sticky,
            mirror: mirror.transpose()?,
            via: Via::new(&settings.via),
            environment: Variable::resolve(&settings.fastcgi.environment),
            settings: Arc::new(settings),
            upstreams,
            checks_started: AtomicBool::new(false),
            no_upstream_warning: ThrottledWarning::default(),
            buffer_space,
            counted_pools: Mutex::default(),
        });
        Ok(Proxy::with_own_pools(shared, Arc::new(|_| String::new())))
    }

    fn with_own_pools(shared: Arc<Shared>, hash_key: HashKey) -> Proxy {
        let pool = |(upstream, member): (&Arc<Upstream>, &UpstreamMember)| {
            Pool::new(upstream.clone(), member.max_connections, shared.settings.clone())
        };
        let members = &shared.settings.upstreams;
        let pools = shared.upstreams.iter().zip(members).map(pool).collect();
        let share = |member: &UpstreamMember| Share {
            is_backup: member.is_backup,
            seed: hash(member.url.to_string().as_bytes()),
        };
        // The count of references differs between workers.
        let seed = Arc::strong_count(&shared) as u64;
        let shares = members.iter().map(share).collect();
        let balancer = Balancer::new(shared.settings.balance, shares, seed);
        let limits = |memory_bytes| {
            let max_file_bytes = shared.settings.max_temp_file_bytes;
            let space = shared.buffer_space.clone();
            Arc::new(SpoolLimits { memory_bytes, max_file_bytes, space })
        };
        let request_limits = limits(shared.settings.request_buffer_bytes);
        let response_limits = limits(shared.settings.response_buffer_bytes);
        let mirror = shared.mirror.as_ref();
        let mirror = mirror.map(|proxy| Mirror::new(proxy.clone(), &shared.settings.mirror, seed));
        Proxy { pools, balancer, hash_key, mirror, request_limits, response_limits, shared }
    }

    /// Hashes requests by `key`.
    pub(crate) fn with_hash_key(self, hash_key: HashKey) -> Proxy {
        Proxy { hash_key, ..self }
    }

    /// Creates the proxy of one worker, with connections of its own.
    pub(super) fn for_worker(&self, has_metrics: bool) -> Proxy {
        let own = self.clone();
        if has_metrics { own.with_metrics() } else { own }
    }

    /// Collects metrics of the requests of this clone.
    pub(crate) fn with_metrics(mut self) -> Proxy {
        self.mirror = self.mirror.take().map(Mirror::with_metrics);
        let mut counted_pools =
            self.shared.counted_pools.lock().unwrap_or_else(PoisonError::into_inner);
        counted_pools.retain(|pool| pool.strong_count() > 0);
        for pool in &self.pools {
            pool.metrics.get_or_init(UpstreamMetrics::default);
            counted_pools.push(Arc::downgrade(pool));
        }
        drop(counted_pools);
        self
    }

    /// Identifies the proxy: the same for all its clones, different for any other proxy.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Handles a request, with a proxy that is borrowed or shared.
    pub(super) fn respond(
        proxy: impl Deref<Target = Proxy>,
        mut request: Request,
    ) -> impl Future<Output = Response> {
        proxy.start_checks();
        if proxy.shared.settings.grpc_web && GrpcWeb::is_call(&request) {
            // Before the body is converted: its limit is that of the received bytes.
            request.body().set_limit(proxy.shared.settings.max_body_bytes);
            // Boxed: most requests are others.
            let call = async move { GrpcWeb::new().call(request, &Forward(&proxy)).await };
            return Either::Left(Box::pin(call));
        }
        Either::Right(Proxy::forward(proxy, request, None))
    }

    /// Handles a request. Clients may keep many requests with a body waiting, so that the future of one
    /// has no space for what follows the body.
    pub(super) fn respond_boxed(
        proxy: Arc<Proxy>,
        mut request: Request,
    ) -> LocalBoxFuture<'static, Response> {
        if request.body().length() == Some(0) || proxy.shared.settings.grpc_web {
            return Proxy::respond(proxy, request).boxed_local();
        }
        proxy.start_checks();
        let mut outbound = OutboundRequest::new(request, None);
        async move {
            if let Some(response) =
                hops::respond_locally(&outbound.request, proxy.shared.via.as_ref())
            {
                return response;
            }
            match proxy.prepare_body(&mut outbound).await {
                Ok(()) => Box::pin(proxy.send(&mut outbound)).await,
                Err(response) => response,
            }
        }
        .boxed_local()
    }

    /// Forwards a request, with FastCGI or SCGI for a script.
    ///
    /// Clients may keep the future of each of their requests waiting. Without `async`, it contains
    /// the request once.
    pub(super) fn forward(
        proxy: impl Deref<Target = Proxy>,
        request: Request,
        script: Option<Box<ScriptCall>>,
    ) -> impl Future<Output = Response> {
        let mut outbound = OutboundRequest::new(request, script);
        async move {
            if let Some(response) =
                hops::respond_locally(&outbound.request, proxy.shared.via.as_ref())
            {
                return response;
            }
            // Most requests have no body.
            if outbound.body_length == Some(0) {
                proxy.copy_to_mirror(&outbound);
            } else if let Err(response) = proxy.prepare_body(&mut outbound).await {
                return response;
            }
            proxy.send(&mut outbound).await
        }
    }

    /// Sends a copy of a request without a body to the mirror, if there is one.
    fn copy_to_mirror(&self, outbound: &OutboundRequest) {
        if let Some((mirror, permit)) = self.mirror_of(outbound) {
            mirror.send(&outbound.request, Bytes::new(), permit);
        }
    }

    /// Returns the mirror for a request, if it may get a copy now.
    fn mirror_of(&self, outbound: &OutboundRequest) -> Option<(&Mirror, MirrorPermit)> {
        let mirror = self.mirror.as_ref()?;
        let may_copy = outbound.script.is_none() && outbound.options.upgrade.is_none();
        may_copy.then(|| mirror.permit()).flatten().map(|permit| (mirror, permit))
    }

    /// Receives the body of a request, unless it is streamed.
    async fn prepare_body(&self, outbound: &mut OutboundRequest) -> Result<(), Response> {
        let settings = &self.shared.settings;
        let request = &mut outbound.request;
        request.body().set_limit(settings.max_body_bytes);
        // A script gets the length before the body (RFC 3875 §4.1.2).
        let needs_length = outbound.script.is_some() && outbound.body_length.is_none();
        // A call may have its response before the end of its request, and its client may be silent
        // between two messages.
        let is_call = grpc::is_call(request) && self.shared.has_http2_upstream();
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
                _ if settings.protocol == Protocol::FastCgi => Framing::FastCgi,
                Some(_) => Framing::Sized,
                None => Framing::Chunked,
            };
            let expect_continue = outbound.options.expect_continue && outbound.script.is_none();
            let trailers = settings.request_trailers.clone();
            let body = std::mem::take(outbound.request.body());
            let upload = Upload::new(body, framing, expect_continue, trailers);
            outbound.upload = Some(Box::new(upload));
        }
        Ok(())
    }

    /// Receives the body of a request. With `needs_length`, all of it, to determine its length. Returns
    /// a copy of the body if `copies` is set and all of it is in memory.
    async fn receive_body(
        &self,
        outbound: &mut OutboundRequest,
        needs_length: bool,
        copies: bool,
    ) -> Result<Option<Bytes>, Response> {
        // The client has sent the body by then, after a 100 (Continue) if it waits for one.
        outbound.options.expect_continue = false;
        let client = self.limited_client(&outbound.request);
        let body = std::mem::take(outbound.request.body());
        // Boxed: the future is large, and most requests have no body.
        match Box::pin(spool::receive(body, &self.request_limits, client, copies)).await {
            Ok(ReceivedBody { length: None, .. }) if needs_length => {
                let error = GatewayError::Overloaded("no space for a request body");
                Err(error.into_reported_response(&"a script", &outbound.request))
            }
            Ok(received) => {
                // The end of a GET over HTTP/2 may come in a DATA frame without content. It needs no
                // chunked coding, which many servers do not expect with this method.
                let is_bodiless = received.length == Some(0)
                    && received.body.is_end_stream()
                    && !has_content(outbound.request.method());
                *outbound.request.body() = received.body;
                if needs_length || is_bodiless {
                    outbound.body_length = received.length;
                }
                Ok(received.copy)
            }
            Err(error) => Err(GatewayError::Client(error).into_response()),
        }
    }

    /// Sends a request of the server's own, without a body and without an upgrade.
    pub(crate) async fn ask(&self, request: Request) -> Response {
        let options = RequestOptions { upgrade: None, expect_continue: false };
        let body_length = Some(0);
        let mut outbound =
            OutboundRequest { options, body_length, ..OutboundRequest::new(request, None) };
        self.send(&mut outbound).await
    }

    /// Sends a request, with retries, until there is a response.
    async fn send(&self, outbound: &mut OutboundRequest) -> Response {
        let settings = &self.shared.settings;
        let key = match self.balancer.needs_key() {
            true => Some((self.hash_key)(&outbound.request)).filter(|key| !key.is_empty()),
            false => None,
        };
        let key = key.map(|key| hash(key.as_bytes()));
        let sticky = self.shared.sticky.as_ref();
        let known = sticky.and_then(|sticky| sticky.find(&outbound.request));
        let mut tried = Vec::new();
        let mut retry = None;
        loop {
            let Some(index) = self.choose_upstream(known, key, &tried) else {
                self.shared.no_upstream_warning.warn("a request has no upstream: none is up");
                let error = GatewayError::NoneAvailable;
                return error_response(error, &"the upstreams", &outbound.request);
            };
            let pool = &self.pools[index];
            let is_retryable = outbound.is_retryable();
            let failure = match self.attempt(pool, outbound, retry).await {
                Ok(response) if self.may_replace(&response, is_retryable, index, &mut tried) => {
                    retry = Some(RetryReason::Status);
                    if let Some(notes) = RequestNotes::of(&outbound.request) {
                        notes.end_attempt();
                        notes.set_retry_reason(RetryReason::Status.name());
                    }
                    continue;
                }
                Ok(response) => {
                    return match sticky.filter(|_| known != Some(index)) {
                        Some(sticky) => sticky.set(index, &outbound.request, response),
                        None => response,
                    };
                }
                Err(failure) => failure,
            };
            if let Some(notes) = RequestNotes::of(&outbound.request) {
                notes.end_attempt();
            }
            match &failure {
                GatewayError::Overloaded(_) => pool.upstream.warn_overloaded(),
                GatewayError::ResourcesExhausted(error) => {
                    self.shared
                        .no_upstream_warning
                        .warn(&format!("a request has no upstream: {error}"));
                }
                failure if failure.counts_against_upstream() => {
                    pool.upstream.record_failure(&failure.reason())
                }
                _ => {}
            }
            tried.push(index);
            retry = RetryReason::of(&failure);
            let may_retry = match failure {
                // No byte of the request was sent.
                GatewayError::Unreachable(_) => true,
                GatewayError::ConnectionLost(_) | GatewayError::StaleConnection(_) => {
                    outbound.is_retryable()
                }
                GatewayError::NotProcessed(_) => outbound.rewind(),
                // Overload is not retried: the balancer has already preferred upstreams with
                // free connections.
                _ => false,
            };
            if !may_retry || tried.len() > settings.max_retries {
                let origin = format_args!("the upstream {}", pool.upstream);
                return error_response(failure, &origin, &outbound.request);
            }
            if let (Some(notes), Some(reason)) = (RequestNotes::of(&outbound.request), retry) {
                notes.set_retry_reason(reason.name());
            }
        }
    }

    /// Sends a request over one connection and converts the upstream's response. A retry uses no idle
    /// connection.
    ///
    /// Without `async`, the future contains each argument once.
    fn attempt(
        &self,
        pool: &Arc<Pool>,
        outbound: &mut OutboundRequest,
        retry: Option<RetryReason>,
    ) -> impl Future<Output = Result<Response, GatewayError>> {
        if let Some(notes) = RequestNotes::of(&outbound.request) {
            notes.begin_attempt(&pool.location);
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
            if let Some(notes) = RequestNotes::of(&outbound.request) {
                notes.set_connection(lease.connection.address);
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
        if let Some(notes) = RequestNotes::of(&outbound.request) {
            notes.set_upstream_status(head.status);
        }
        let response = match head.status {
            StatusCode::SWITCHING_PROTOCOLS => self.start_tunnel(lease, outbound, &head)?,
            _ => {
                let response = self.forward_response(lease, outbound, &head, body)?;
                let (upstream, mount) = (&pool.upstream.url, outbound.request.mount());
                rewriting::rewrite(&head, response, settings, &Origin { upstream, mount })
            }
        };
        self.record_response(pool, head.status, latency);
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
    fn limited_client(&self, request: &Request) -> Option<Client> {
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
        head: &ResponseHead,
        body: BodyReader,
    ) -> Result<Response, GatewayError> {
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
        let notes = RequestNotes::of(&outbound.request).cloned();
        let mut download = Download::new(head, body, lease, upload, settings.body_timeout, notes);
        let body = match download.take_received_body() {
            Some(_) if has_unknown_length => Body::from_http_body(EmptyOfUnknownLength),
            Some(bytes) => bytes.into(),
            None if response::is_event_stream(head) => {
                Body::from_http_body(download.with_idle_timeout(settings.tunnel_timeout))
            }
            None if settings.buffer_responses && !response::refuses_buffering(head) => {
                let client = self.limited_client(&outbound.request);
                let spool = Spool::new(Bytes::new(), download, &self.response_limits, client);
                spool.receive_available().into_body()
            }
            None => Body::from_http_body(download),
        };
        Ok(response::apply_head(head, Response::body(body), self.shared.via.as_ref()))
    }

    /// Connects client and upstream after a 101 (Switching Protocols).
    fn start_tunnel(
        &self,
        lease: Lease,
        outbound: &OutboundRequest,
        head: &ResponseHead,
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

    /// Starts the health checks of the upstreams, once per proxy.
    fn start_checks(&self) {
        let Some(check) = &self.shared.settings.check else { return };
        if self.shared.checks_started.swap(true, Relaxed) {
            return;
        }
        let check = Arc::new(check.clone());
        for upstream in &self.shared.upstreams {
            let is_lenient = self.shared.settings.lenient_responses;
            tokio::spawn(check::run(Arc::downgrade(upstream), check.clone(), is_lenient));
        }
    }
}

/// Returns true if requests with a method have content, so that they need a length even if it is 0
/// (RFC 9110 §8.6).
fn has_content(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

/// Records the time for which a request has waited for a connection.
fn note_queue_time(pool: &Pool, request: &Request, time: Duration) {
    if let Some(metrics) = pool.metrics.get() {
        metrics.record_queue_time(time);
    }
    if let Some(notes) = RequestNotes::of(request) {
        notes.set_queue_time(time);
    }
}

/// Creates the response to a request that has failed, and the error for the error hook. A call of
/// gRPC gets a status of its own.
fn error_response(
    failure: GatewayError,
    origin: &dyn std::fmt::Display,
    request: &Request,
) -> Response {
    if !grpc::is_call(request) {
        return failure.into_reported_response(origin, request);
    }
    let response = grpc::error_response(&failure);
    match failure {
        GatewayError::Client(error) => response.with_error(error),
        failure => response.with_error(failure.to_error(origin, request)),
    }
}

impl Application for Proxy {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        Proxy::respond(self, request)
    }
}

/// A proxy without the conversion of gRPC-Web.
struct Forward<'a>(&'a Proxy);

impl Application for Forward<'_> {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        Proxy::forward(self.0, request, None)
    }
}

impl Clone for Proxy {
    fn clone(&self) -> Proxy {
        Proxy::with_own_pools(self.shared.clone(), self.hash_key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client may keep many requests waiting for an upstream: the future of each is kept.
    #[test]
    fn futures_of_requests_are_small() {
        fn size<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        let forwarded = size::<Arc<Proxy>, _, _, _>(Proxy::forward);
        let connecting = size(Upstream::connect_with_preface);
        let received = {
            fn size<A, B, C, D, F>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
                size_of::<F>()
            }
            size(spool::receive)
        };
        assert!(forwarded <= 536, "{forwarded}");
        assert!(connecting <= 456, "{connecting}");
        assert!(received <= 128, "{received}");
    }
}
