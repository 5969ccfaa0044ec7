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

use std::ffi::OsString;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::Either;
use weft::middleware::GrpcWeb;
use weft::{Application, Body, Method, Middleware, Request, Response, StatusCode};
use weft_proto::http1::client::ResponseHead;

#[allow(unused_imports, reason = "the tests of the proxy do not use it")]
pub(crate) use self::balance::{Balancer, Candidate, Share};
pub(crate) use self::connection::UpstreamConnection;
use self::download::{Download, EmptyOfUnknownLength};
use self::exchange::OutboundRequest;
pub(crate) use self::fetch::{OwnRequest, OwnResponse, RemoteResource, RemoteServer};
pub(crate) use self::fields::may_permit_in_request_trailers;
pub(crate) use self::health::{FailurePolicy, Health};
use self::hops::Via;
use self::latency::UpstreamWait;
pub(crate) use self::member::UpstreamMember;
use self::metrics::{RetryReason, UpstreamMetrics};
pub(crate) use self::metrics::{State, UpstreamReport};
use self::pool::{Lease, Leased, Pool};
use self::request::{Destination, RequestOptions};
use self::response_reader::BodyReader;
use self::rewriting::Origin;
pub(crate) use self::rewriting::Replacement;
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
use super::script::{Script, Variable};
use super::spool::{self, BufferSpace, ReceivedBody, Spool, SpoolLimits};
use super::timer::InactivityTimer;
use crate::request_notes::RequestNotes;
use crate::throttled_log::ThrottledWarning;

/// An application that forwards requests to upstreams. Each clone has its own connections (one
/// clone per worker); the health of the upstreams is shared.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    pools: Vec<Arc<Pool>>,
    balancer: Balancer,
    /// Returns the key by which a request is hashed; empty: it has none.
    hash_key: HashKey,
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
                Some(tls::config(settings.ca.as_deref(), own.as_ref(), settings.http_version)?)
            }
            false => None,
        };
        let policy = FailurePolicy {
            max_failures: settings.max_failures,
            window: settings.failure_window,
            down_time: settings.down_time,
            slow_start: settings.slow_start,
        };
        let upstream = |url: &url::UpstreamUrl| {
            let health = Health::new(policy, Instant::now());
            let http_version = settings.http_version_of(url);
            let name = settings.tls_name.as_deref();
            let upstream = Upstream::new(url.clone(), health, &tls)?.with_server_name(name)?;
            Ok(Arc::new(upstream.with_http_version(http_version)))
        };
        let upstreams: Vec<_> = settings.urls().map(upstream).collect::<Result<_, String>>()?;
        let sticky = Sticky::new(&settings.sticky, settings.upstreams.iter().map(|it| &it.url))?;
        let shared = Arc::new(Shared {
            sticky,
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
            weight: member.weight,
            is_backup: member.is_backup,
            seed: balance::hash(member.url.to_string().as_bytes()),
        };
        // The count of references differs between workers.
        let seed = Arc::strong_count(&shared) as u64;
        let shares = members.iter().map(share).collect();
        let balancer = match Balancer::new(shared.settings.balance, shares, seed) {
            balancer if shared.settings.slow_start.is_zero() => balancer,
            balancer => balancer.with_varying_weights(),
        };
        let limits = |memory_bytes| {
            let max_file_bytes = shared.settings.max_temp_file_bytes;
            let space = shared.buffer_space.clone();
            Arc::new(SpoolLimits { memory_bytes, max_file_bytes, space })
        };
        let request_limits = limits(shared.settings.request_buffer_bytes);
        let response_limits = limits(shared.settings.response_buffer_bytes);
        Proxy { pools, balancer, hash_key, request_limits, response_limits, shared }
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
    pub(crate) fn with_metrics(self) -> Proxy {
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

    /// Reports the state of the upstreams and the metrics of all clones.
    pub(crate) fn report(&self) -> Vec<UpstreamReport> {
        let counted_pools =
            self.shared.counted_pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pools: Vec<Arc<Pool>> = counted_pools.iter().filter_map(Weak::upgrade).collect();
        let report = |upstream: &Arc<Upstream>| {
            let mut report = UpstreamReport::new(upstream);
            let own_pools = pools.iter().filter(|pool| Arc::ptr_eq(&pool.upstream, upstream));
            own_pools.for_each(|pool| report.add(pool));
            report
        };
        self.shared.upstreams.iter().map(report).collect()
    }

    /// Identifies the proxy: the same for all its clones, different for any other proxy.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Forwards a request, with FastCGI or SCGI for a script.
    pub(super) async fn forward(&self, request: Request, script: Option<Box<Script>>) -> Response {
        match self.prepare(request, script).await {
            Ok(mut outbound) => self.send(&mut outbound).await,
            Err(response) => response,
        }
    }

    /// Receives the body of a request, unless it is streamed. A function of its own, so that its
    /// variables occupy no memory while the response is awaited.
    async fn prepare(
        &self,
        mut request: Request,
        script: Option<Box<Script>>,
    ) -> Result<OutboundRequest, Response> {
        let settings = &self.shared.settings;
        if *request.method() == Method::CONNECT {
            // RFC 9110 §9.3.6: CONNECT is meant for a forward proxy; this is a reverse proxy.
            return Err(StatusCode::NOT_IMPLEMENTED.into());
        }
        if let Some(response) = hops::respond_locally(&request, self.shared.via.as_ref()) {
            return Err(response);
        }
        let mut body = std::mem::take(request.body());
        body.set_limit(settings.max_body_bytes);
        let mut body_length = body.length();
        let mut options = RequestOptions::new(&request, body_length);
        // A script gets the length before the body (RFC 3875 §4.1.2).
        let needs_length = script.is_some() && body_length.is_none();
        // A call may have its response before the end of its request, and its client may be silent
        // between two messages.
        let is_call = grpc::is_call(&request) && self.shared.has_http2_upstream();
        if is_call {
            body.set_min_rate(0, Duration::MAX);
        }
        let is_buffered = settings.buffer_requests && !is_call;
        if body_length != Some(0) && (is_buffered || needs_length) {
            // The client has sent the body by then, after a 100 (Continue) if it waits for one.
            options.expect_continue = false;
            // Boxed: the future is large, and most requests have no body.
            let client = self.limited_client(&request);
            match Box::pin(spool::receive(body, &self.request_limits, client)).await {
                Ok(ReceivedBody { length: None, .. }) if needs_length => {
                    let error = GatewayError::Overloaded("no space for a request body");
                    return Err(error.into_reported_response(&"a script", &request));
                }
                Ok(received) => {
                    body = received.body;
                    body_length = received.length.filter(|_| needs_length).or(body_length);
                }
                Err(error) => return Err(GatewayError::Client(error).into_response()),
            }
        }
        let upload = (body_length != Some(0)).then(|| {
            let framing = match body_length {
                _ if settings.protocol == Protocol::FastCgi => Framing::FastCgi,
                Some(_) => Framing::Sized,
                None => Framing::Chunked,
            };
            let expect_continue = options.expect_continue && script.is_none();
            let trailers = settings.request_trailers.clone();
            Box::new(Upload::new(body, framing, expect_continue, trailers))
        });
        let wait = UpstreamWait::default();
        Ok(OutboundRequest { request, options, body_length, script, upload, wait })
    }

    /// Sends a request of the server's own, without a body and without an upgrade.
    pub(crate) async fn ask(&self, request: Request) -> Response {
        let options = RequestOptions { upgrade: None, expect_continue: false };
        let (body_length, script, upload) = (Some(0), None, None);
        let wait = UpstreamWait::default();
        let mut outbound = OutboundRequest { request, options, body_length, script, upload, wait };
        self.send(&mut outbound).await
    }

    /// Sends a request, with retries, until there is a response.
    async fn send(&self, outbound: &mut OutboundRequest) -> Response {
        let settings = &self.shared.settings;
        let key = match self.balancer.needs_key() {
            true => Some((self.hash_key)(&outbound.request)).filter(|key| !key.is_empty()),
            false => None,
        };
        let key = key.map(|key| balance::hash(key.as_bytes()));
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

    /// Returns true if the status of a response is a failure, and another upstream may respond in its
    /// place; the upstream is tried then.
    fn may_replace(
        &self,
        response: &Response,
        is_retryable: bool,
        index: usize,
        tried: &mut Vec<usize>,
    ) -> bool {
        let settings = &self.shared.settings;
        let is_failure = settings.failure_statuses.contains(&response.status());
        if !is_failure || !is_retryable || tried.len() >= settings.max_retries {
            return false;
        }
        tried.push(index);
        let now = Instant::now();
        let mut pools = self.pools.iter().enumerate();
        pools.any(|(other, pool)| {
            let health = &pool.upstream.health;
            !tried.contains(&other) && !health.is_unhealthy() && !health.is_resting(now)
        })
    }

    /// Records a response for the health of its upstream.
    fn record_response(&self, pool: &Pool, status: StatusCode, latency: Duration) {
        let settings = &self.shared.settings;
        if settings.failure_statuses.contains(&status) {
            pool.upstream.record_failure(&format!("the status is {status}"));
        } else if !settings.failure_latency.is_zero() && latency > settings.failure_latency {
            let millis = latency.as_millis();
            pool.upstream.record_failure(&format!("the response took {millis} ms"));
        } else {
            pool.upstream.record_success();
        }
    }

    /// Returns the upstream for a request, which is that of its session unless that is down.
    fn choose_upstream(
        &self,
        of_session: Option<usize>,
        key: Option<u64>,
        tried: &[usize],
    ) -> Option<usize> {
        let count = self.pools.len();
        if count == 1 && !self.pools[0].upstream.health.is_unhealthy() {
            return Some(0);
        }
        let now = Instant::now();
        let candidate = |index: usize| {
            let pool = &self.pools[index];
            let health = &pool.upstream.health;
            Candidate {
                // Resting the only upstream would fail all requests for no benefit.
                is_up: !health.is_unhealthy() && (count == 1 || !health.is_resting(now)),
                was_tried: tried.contains(&index),
                is_full: pool.is_full(),
                load: pool.load(),
                percent: health.percent(now),
            }
        };
        let is_available = |index: &usize| {
            let it = candidate(*index);
            it.is_up && !it.was_tried
        };
        let chosen =
            of_session.filter(is_available).or_else(|| self.balancer.choose(key, candidate));
        // If the responses of all are failures, what they send is better than nothing.
        let still_responds = |index: usize| Candidate {
            is_up: !self.pools[index].upstream.health.is_unhealthy(),
            ..candidate(index)
        };
        match self.shared.settings.has_failing_responses() {
            false => chosen,
            true => chosen.or_else(|| self.balancer.choose(key, still_responds)),
        }
    }

    /// Sends a request over one connection and converts the upstream's response. A retry uses no idle
    /// connection.
    async fn attempt(
        &self,
        pool: &Arc<Pool>,
        outbound: &mut OutboundRequest,
        retry: Option<RetryReason>,
    ) -> Result<Response, GatewayError> {
        let settings = &self.shared.settings;
        if let Some(notes) = RequestNotes::of(&outbound.request) {
            notes.begin_attempt(&pool.location);
        }
        outbound.wait = UpstreamWait::new(settings.failure_latency);
        let (client, mut queue_time) = (self.limited_client(&outbound.request), Duration::ZERO);
        let leased = pool.lease(client, retry.is_some(), &mut queue_time).await;
        if !queue_time.is_zero() {
            note_queue_time(pool, &outbound.request, queue_time);
        }
        let mut lease = match leased? {
            Leased::Connection(lease) => lease,
            // Boxed: the future is large.
            Leased::Stream(lease) => {
                return Box::pin(self.attempt_in_stream(pool, lease, outbound, retry)).await;
            }
        };
        if let Some(notes) = RequestNotes::of(&outbound.request) {
            notes.set_connection(lease.connection.address);
        }
        let OutboundRequest { request, options, body_length, script, .. } = &*outbound;
        let (upstream, via) = (&pool.upstream.url, self.shared.via.as_ref());
        let (out, to) = (lease.connection.output.tail(), Destination { upstream, settings, via });
        let composed = match script {
            Some(script) => {
                let environment = &self.shared.environment;
                let application = scripts::Application { settings, environment };
                scripts::compose(out, request, script, *body_length, &application)
            }
            None => request::compose(out, request, options, *body_length, &to),
        };
        if let Err(error) = composed {
            out.clear();
            lease.return_to_pool();
            return Err(GatewayError::Client(error));
        }
        let sent_request = pool.metrics.get().map(|metrics| metrics.start_request(retry));
        let space = &self.shared.buffer_space;
        let (head, body) = exchange::run(&mut lease, outbound, settings, space).await?;
        let latency = outbound.wait.elapsed();
        if let Some(sent_request) = sent_request {
            sent_request.record_response();
        }
        if let Some(notes) = RequestNotes::of(&outbound.request) {
            notes.set_upstream_status(head.status);
        }
        let response = match head.status {
            StatusCode::SWITCHING_PROTOCOLS => self.start_tunnel(lease, outbound, &head)?,
            _ => {
                let response = self.forward_response(lease, outbound, &head, body)?;
                let mount = outbound.request.mount();
                rewriting::rewrite(&head, response, settings, &Origin { upstream, mount })
            }
        };
        self.record_response(pool, head.status, latency);
        Ok(response)
    }

    /// Returns the client that a connection and buffered bodies are counted for; `None` for one
    /// without a limit of its own.
    fn limited_client(&self, request: &Request) -> Option<Client> {
        let address = request.peer().address()?.ip();
        let is_trusted = self.shared.settings.trusted().iter().any(|net| net.contains(address));
        (!is_trusted).then(|| Client::new(address))
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
    fn call(&self, mut request: Request) -> impl Future<Output = Response> {
        self.start_checks();
        if self.shared.settings.grpc_web && GrpcWeb::is_call(&request) {
            // Before the body is converted: its limit is that of the received bytes.
            request.body().set_limit(self.shared.settings.max_body_bytes);
            // Boxed: most requests are others.
            let call = async { GrpcWeb::new().call(request, &Forward(self)).await };
            return Either::Left(Box::pin(call));
        }
        Either::Right(self.forward(request, None))
    }
}

/// A proxy without the conversion of gRPC-Web.
struct Forward<'a>(&'a Proxy);

impl Application for Forward<'_> {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.0.forward(request, None)
    }
}

impl Clone for Proxy {
    fn clone(&self) -> Proxy {
        Proxy::with_own_pools(self.shared.clone(), self.hash_key.clone())
    }
}
