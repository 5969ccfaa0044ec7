//! A reverse proxy: forwards requests to upstreams and returns their responses.
//!
//! # The path of a request
//!
//! 1. The body of the request is received (`request_body`, `apps/spool`), so that a slow client occupies
//!    no connection.
//! 2. `retry` chooses one of the available upstreams (`balance`, `health`) for each attempt.
//! 3. `pool` leases a connection to the request for its exclusive use: an idle one, or a new one.
//!    Connections belong to the worker; `connection` defines one.
//! 4. `attempt` sends the request over it: `request` composes a new head from the parsed request, or
//!    `scripts` the variables for a script; `upload` sends the body, and `exchange` waits for the
//!    head of the response, which `response_reader` parses in the protocol of the upstream. Over
//!    HTTP/2, `http2` does all of this in a stream of a connection that requests share.
//! 5. A failure before the first byte of the response may be retried. Otherwise the client gets an
//!    error page (`apps/gateway`).
//! 6. `response` returns the head with the changes of `rewriting`, `download` reads the body; at the
//!    end of the body the connection returns to the pool. After a 101, `tunnel` copies between the
//!    two connections.
//!
//! All of this runs in the task of the request, except for the rest of a response that has not been
//! received together with its head: it is received in a task of its own (`apps/spool`), as fast as
//! the upstream sends it. Without buffering, `upload` and `download` stream the bodies, and no task
//! stands between the client and the upstream.

mod attempt;
mod choice;
mod mirror;
mod operation;
mod request_body;
mod retry;
pub(crate) mod tunnel;
pub(crate) mod upstream_group;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::future::{FutureExt, LocalBoxFuture, ready};
use weft::middleware::GrpcWeb;
use weft::{Application, Middleware, Request, Response};

use crate::balance::sticky::Sticky;
use crate::base::throttled_warning::ThrottledWarning;
use crate::exchange::outbound_request::OutboundRequest;
use crate::head::forwarded_request::RequestOptions;
use crate::head::hops::{self, Via};
use crate::pool::connection_pool::Pool;
use crate::pool::upstream_metrics::UpstreamMetrics;
use crate::proxy::mirror::Mirror;
use crate::proxy::upstream_group::Groups;
use crate::proxy::upstream_group::Members;
use crate::script::protocol::ScriptCall;
use crate::settings::invalid_settings::InvalidSettings;
use crate::settings::proxy_settings::ProxySettings;
use crate::settings::variable::Variable;
use crate::spool::SpoolLimits;
use crate::spool::buffer_space::BufferSpace;
use crate::tls;
use crate::url::http_version::HttpVersion;
use crate::url::upstream_url::UpstreamUrl;

/// An application that forwards requests to upstreams. Each clone has its own connections (one
/// clone per worker); the health of the upstreams is shared.
pub struct ReverseProxy {
    pub(crate) shared: Arc<Shared>,
    pub(crate) members: WorkerMembers,
    /// Metrics are collected.
    pub(crate) has_metrics: AtomicBool,
    /// Returns the key by which a request is hashed; empty: it has none.
    pub(crate) hash_key: HashKey,
    /// Copies of requests for another server.
    pub(crate) mirror: Option<Mirror>,
    /// Limits of buffered bodies. Each worker has its own, so that their reference counts are not
    /// shared.
    pub(crate) request_limits: Arc<SpoolLimits>,
    pub(crate) response_limits: Arc<SpoolLimits>,
}

/// The upstreams of a worker.
pub(crate) enum WorkerMembers {
    Fixed(Members),
    /// Some are servers of services. One worker uses the lock.
    Changing(Mutex<Arc<Members>>),
}

/// Function that returns the key of a request; empty: it has none.
pub type HashKey = Arc<dyn Fn(&Request) -> String + Send + Sync>;

pub(crate) struct Shared {
    pub(crate) settings: Arc<ProxySettings>,
    pub(crate) groups: Groups,
    /// Set by the first request, which starts the health checks: there is no event loop earlier.
    pub(crate) checks_started: AtomicBool,
    /// Logged if no upstream is available for a request.
    pub(crate) no_upstream_warning: ThrottledWarning,
    pub(crate) via: Option<Via>,
    pub(crate) sticky: Option<Sticky>,
    pub(crate) buffer_space: Arc<BufferSpace>,
    /// Configured variables for scripts.
    pub(crate) environment: Vec<(String, OsString)>,
    /// The proxy for copies of requests, from which each worker has its own.
    pub(crate) mirror: Option<ReverseProxy>,
    /// Pools of the clones that collect metrics.
    pub(crate) counted_pools: Mutex<Vec<Weak<Pool>>>,
}

impl Shared {
    fn has_http2_upstream(&self) -> bool {
        let mut urls = self.settings.urls();
        urls.any(|url| self.settings.http_version_of(url) != HttpVersion::Http1)
    }
}

impl ReverseProxy {
    /// Returns true if all upstreams have a path in their URL.
    pub fn has_path(&self) -> bool {
        self.shared.settings.urls().all(UpstreamUrl::has_path)
    }

    /// Creates a proxy for [upstreams](ProxySettings::new), with default settings.
    ///
    /// # Errors
    /// If there is no URL, or one of them is invalid.
    pub fn new<I: IntoIterator<Item: AsRef<str>>>(
        upstreams: I,
    ) -> Result<ReverseProxy, InvalidSettings> {
        ReverseProxy::with_settings(ProxySettings::new(upstreams)?, Arc::default())
    }

    /// Creates a proxy whose clones share the health of the upstreams. Buffered bodies are stored in
    /// `buffer_space`, which several proxies may share.
    ///
    /// # Errors
    /// If a setting is invalid, or certificates cannot be read.
    pub fn with_settings(
        settings: ProxySettings,
        buffer_space: Arc<BufferSpace>,
    ) -> Result<ReverseProxy, InvalidSettings> {
        settings.validate()?;
        let tls = match settings.has_tls_upstream() {
            true => {
                let own = settings.client_identity();
                let (ca, pins) = (settings.ca.as_deref(), &settings.tls_pin);
                Some(tls::config(ca, own.as_ref(), pins, settings.http_version)?)
            }
            false => None,
        };
        let settings = Arc::new(settings);
        let groups = Groups::new(settings.clone(), tls)?;
        let sticky = Sticky::new(&settings.sticky)?;
        let mirror = settings.mirror.proxy_settings(&settings);
        let mirror =
            mirror.map(|settings| ReverseProxy::with_settings(settings, buffer_space.clone()));
        let shared = Arc::new(Shared {
            sticky,
            mirror: mirror.transpose()?,
            via: Via::new(&settings.via),
            environment: Variable::resolve(&settings.fastcgi.environment),
            settings,
            groups,
            checks_started: AtomicBool::new(false),
            no_upstream_warning: ThrottledWarning::default(),
            buffer_space,
            counted_pools: Mutex::default(),
        });
        Ok(ReverseProxy::with_own_pools(shared, Arc::new(|_| String::new())))
    }

    fn with_own_pools(shared: Arc<Shared>, hash_key: HashKey) -> ReverseProxy {
        // The count of references differs between workers.
        let seed = Arc::strong_count(&shared) as u64;
        let members = Members::new(shared.groups.current(), &shared, &[], seed);
        let members = match shared.groups.has_services() {
            true => WorkerMembers::Changing(Mutex::new(Arc::new(members))),
            false => WorkerMembers::Fixed(members),
        };
        let limits = |memory_bytes| {
            let max_file_bytes = shared.settings.max_temp_file_bytes;
            let space = shared.buffer_space.clone();
            Arc::new(SpoolLimits { memory_bytes, max_file_bytes, space })
        };
        let request_limits = limits(shared.settings.request_buffer_bytes);
        let response_limits = limits(shared.settings.response_buffer_bytes);
        let mirror = shared.mirror.as_ref();
        let mirror = mirror.map(|proxy| Mirror::new(proxy.clone(), &shared.settings.mirror, seed));
        let has_metrics = AtomicBool::new(false);
        ReverseProxy {
            members,
            has_metrics,
            hash_key,
            mirror,
            request_limits,
            response_limits,
            shared,
        }
    }

    /// Hashes requests by `key`.
    pub fn with_hash_key(self, hash_key: HashKey) -> ReverseProxy {
        ReverseProxy { hash_key, ..self }
    }

    /// Creates the proxy of one worker, with connections of its own.
    pub fn for_worker(&self, has_metrics: bool) -> ReverseProxy {
        let own = self.clone();
        if has_metrics { own.with_metrics() } else { own }
    }

    /// Collects metrics of the requests of this clone.
    pub fn with_metrics(mut self) -> ReverseProxy {
        self.mirror = self.mirror.take().map(Mirror::with_metrics);
        self.has_metrics.store(true, Relaxed);
        match &self.members {
            WorkerMembers::Fixed(members) => self.count_pools(&members.pools),
            WorkerMembers::Changing(members) => {
                self.count_pools(&members.lock().unwrap_or_else(PoisonError::into_inner).pools);
            }
        }
        self
    }

    /// Collects metrics of the requests in these pools.
    fn count_pools(&self, pools: &[Arc<Pool>]) {
        let mut counted_pools =
            self.shared.counted_pools.lock().unwrap_or_else(PoisonError::into_inner);
        counted_pools.retain(|pool| pool.strong_count() > 0);
        for pool in pools {
            let mut is_new = false;
            pool.metrics.get_or_init(|| {
                is_new = true;
                UpstreamMetrics::default()
            });
            if is_new {
                counted_pools.push(Arc::downgrade(pool));
            }
        }
    }

    /// Returns the upstreams of this worker as the DNS has them now.
    async fn resolve_members(&self, members: &Mutex<Arc<Members>>) -> Arc<Members> {
        let group = self.shared.groups.resolve().await;
        let mut members = members.lock().unwrap_or_else(PoisonError::into_inner);
        if !members.is_of(&group) {
            let seed = Arc::strong_count(&self.shared) as u64;
            let current = Members::new(group, &self.shared, &members.pools, seed);
            if self.has_metrics.load(Relaxed) {
                self.count_pools(&current.pools);
            }
            *members = Arc::new(current);
        }
        members.clone()
    }

    /// Identifies the proxy: the same for all its clones, different for any other proxy.
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Handles a request, with a proxy that is borrowed or shared.
    pub fn respond<'a>(
        proxy: impl Deref<Target = ReverseProxy> + 'a,
        mut request: Request,
    ) -> LocalBoxFuture<'a, Response> {
        proxy.start_checks();
        if proxy.shared.settings.grpc_web && GrpcWeb::is_call(&request) {
            // Before the body is converted: its limit is that of the received bytes.
            request.body().set_limit(proxy.shared.settings.max_body_bytes);
            return async move { GrpcWeb::new().call(request, &Forward(&proxy)).await }
                .boxed_local();
        }
        ReverseProxy::forward(proxy, request, None)
    }

    /// Forwards a request, with FastCGI or SCGI for a script.
    ///
    /// Clients may keep many requests with a body waiting, so that the future of one has no space for
    /// what follows the body.
    pub fn forward<'a>(
        proxy: impl Deref<Target = ReverseProxy> + 'a,
        request: Request,
        script: Option<Box<ScriptCall>>,
    ) -> LocalBoxFuture<'a, Response> {
        if let Some(response) = hops::respond_locally(&request, proxy.shared.via.as_ref()) {
            return ready(response).boxed_local();
        }
        let mut outbound = OutboundRequest::new(request, script);
        if outbound.body_length == Some(0) {
            proxy.copy_to_mirror(&outbound);
            return async move { proxy.send(&mut outbound).await }.boxed_local();
        }
        async move {
            match proxy.prepare_body(&mut outbound).await {
                Ok(()) => Box::pin(proxy.send(&mut outbound)).await,
                Err(response) => response,
            }
        }
        .boxed_local()
    }

    /// Sends a request of the server's own, without a body and without an upgrade.
    pub async fn ask(&self, request: Request) -> Response {
        let options = RequestOptions { upgrade: None, expect_continue: false };
        let body_length = Some(0);
        let mut outbound =
            OutboundRequest { options, body_length, ..OutboundRequest::new(request, None) };
        self.send(&mut outbound).await
    }

    /// Starts the health checks of the upstreams, once per proxy.
    fn start_checks(&self) {
        let Some(check) = &self.shared.settings.check else { return };
        if self.shared.checks_started.swap(true, Relaxed) {
            return;
        }
        self.shared.groups.start_checks(check);
    }
}

impl Application for ReverseProxy {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        ReverseProxy::respond(self, request)
    }
}

/// A proxy without the conversion of gRPC-Web.
struct Forward<'a>(&'a ReverseProxy);

impl Application for Forward<'_> {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        ReverseProxy::forward(self.0, request, None)
    }
}

impl Clone for ReverseProxy {
    fn clone(&self) -> ReverseProxy {
        ReverseProxy::with_own_pools(self.shared.clone(), self.hash_key.clone())
    }
}
