//! A reverse proxy: forwards requests to upstreams and returns their responses.
//!
//! # The path of a request
//!
//! 1. [`RequestBodies`] receives the body of the request, so that a slow client occupies no
//!    connection.
//! 2. [`Forwarding`] makes one attempt after the other. [`UpstreamChoice`] chooses an available
//!    upstream for each of them.
//! 3. A pool leases a connection to the [`Attempt`](attempt::Attempt) for its exclusive use: an
//!    idle one, or a new one. Connections belong to the worker.
//! 4. The attempt sends the request over the connection. The head is composed anew from the parsed
//!    request, or the variables for a script. `exchange` has the trait for the protocols of
//!    upstreams.
//! 5. A failure before the first byte of the response may be retried. Otherwise the client gets an
//!    error page.
//! 6. [`UpstreamResponse`](upstream_response::UpstreamResponse) converts the response. At the end
//!    of its body the connection returns to the pool. After a 101, data is copied between the two
//!    connections.
//!
//! All of this runs in the task of the request, except for the rest of a response that has not been
//! received together with its head. A task of its own receives it ([`spool`](crate::spool)) as fast
//! as the upstream sends it. Without buffering, bodies are streamed, and no task stands between the
//! client and the upstream.

mod attempt;
mod counted_pools;
mod forwarding;
mod held_request;
mod mirror;
mod proxy_context;
mod request_body;
mod upstream_choice;
mod upstream_groups;
mod upstream_response;
mod worker_upstreams;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use futures_util::future::{Either, FutureExt, LocalBoxFuture, ready};
use http::Method;
use tokio::runtime::Handle;
use weft::client_limit::Client;
use weft::middleware::GrpcWeb;
use weft::{Application, Middleware, Request, Response};

use self::counted_pools::CountedPools;
use self::forwarding::Forwarding;
use self::mirror::Mirror;
use self::proxy_context::{ProxyContext, WorkerContext};
use self::request_body::RequestBodies;
use self::upstream_choice::UpstreamChoice;
use self::upstream_groups::{UpstreamGroup, UpstreamGroups};
use self::worker_upstreams::{WorkerGroup, WorkerUpstreams};
use crate::base::invalid_settings::InvalidSettings;
use crate::base::rendezvous::hash;
use crate::connect::upstream::Upstream;
use crate::exchange::outbound_request::OutboundRequest;
use crate::head::forwarded_request::RequestOptions;
use crate::head::hops;
use crate::health::operator_control::ControlChange;
use crate::pool::connection_pool::ConnectionPool;
use crate::pool::upstream_report::UpstreamReport;
use crate::script::ScriptCall;
use crate::settings::proxy_settings::ProxySettings;
use crate::spool::BufferSpace;
use crate::tls;
use crate::url::into_upstreams::IntoUpstreams;
use crate::url::upstream_url::UpstreamUrl;

/// An application that forwards requests to upstreams. Each clone has its own connections (one
/// clone per worker); the health of the upstreams is shared.
pub struct ReverseProxy {
    shared: Arc<SharedState>,
    context: WorkerContext,
    upstreams: WorkerUpstreams,
    /// Metrics are collected.
    has_metrics: bool,
    /// Returns the key by which a request is hashed; empty: it has none.
    hash_key: HashKey,
    /// Copies of requests for another server.
    mirror: Option<Mirror>,
}

/// Function that returns the key of a request; empty: it has none.
pub type HashKey = Arc<dyn Fn(&Request) -> String + Send + Sync>;

/// State that the clones of a proxy share.
struct SharedState {
    context: Arc<ProxyContext>,
    groups: UpstreamGroups,
    /// Set by the first worker, or by the first request, which starts the health checks: there is
    /// no event loop earlier.
    checks_started: AtomicBool,
    /// The proxy for copies of requests, from which each worker has its own.
    mirror: Option<ReverseProxy>,
    counted_pools: CountedPools,
}

impl ReverseProxy {
    /// Creates a proxy for one upstream or a list of them, with default settings.
    ///
    /// ```
    /// use weft_upstream::ReverseProxy;
    ///
    /// let proxy = ReverseProxy::new("http://127.0.0.1:3000")?;
    /// let balanced = ReverseProxy::new(["http://one:3000 weight=3", "http://two:3000"])?;
    /// # drop((proxy, balanced));
    /// # Ok::<(), weft_upstream::InvalidSettings>(())
    /// ```
    ///
    /// # Errors
    /// If there is no URL, or one of them is invalid.
    pub fn new(upstreams: impl IntoUpstreams) -> Result<ReverseProxy, InvalidSettings> {
        ReverseProxy::with_settings(ProxySettings::new(upstreams)?, Arc::default())
    }

    /// Creates a proxy whose clones share the health of the upstreams. Buffered bodies are stored
    /// in `buffer_space`, which several proxies may share.
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
                Some(tls::client_config(ca, own.as_ref(), pins, settings.http_version)?)
            }
            false => None,
        };
        let settings = Arc::new(settings);
        let mirror = settings.of_mirror();
        let mirror =
            mirror.map(|settings| ReverseProxy::with_settings(settings, buffer_space.clone()));
        let shared = Arc::new(SharedState {
            groups: UpstreamGroups::new(settings.clone(), tls)?,
            mirror: mirror.transpose()?,
            context: Arc::new(ProxyContext::new(settings, buffer_space)?),
            checks_started: AtomicBool::new(false),
            counted_pools: CountedPools::default(),
        });
        Ok(ReverseProxy::with_own_pools(shared, Arc::new(|_| String::new())))
    }

    fn with_own_pools(shared: Arc<SharedState>, hash_key: HashKey) -> ReverseProxy {
        let seed = shared.seed();
        let copies = &shared.context.settings.mirror;
        let mirror = shared.mirror.as_ref();
        let mirror = mirror.map(|proxy| Mirror::new(proxy.clone(), copies, seed));
        ReverseProxy {
            upstreams: WorkerUpstreams::new(&shared.groups, &shared.context, seed),
            context: WorkerContext::new(shared.context.clone()),
            has_metrics: false,
            hash_key,
            mirror,
            shared,
        }
    }

    /// Hashes requests by `key`.
    pub fn with_hash_key(self, hash_key: HashKey) -> ReverseProxy {
        ReverseProxy { hash_key, ..self }
    }

    /// Creates the proxy of one worker, with connections of its own. On an event loop, health
    /// checks of the upstreams begin.
    pub fn for_worker(&self, has_metrics: bool) -> ReverseProxy {
        let own = self.clone();
        if Handle::try_current().is_ok() {
            own.start_checks();
        }
        if has_metrics { own.with_metrics() } else { own }
    }

    /// Collects metrics of the requests of this clone.
    pub fn with_metrics(mut self) -> ReverseProxy {
        self.mirror = self.mirror.take().map(Mirror::with_metrics);
        self.has_metrics = true;
        self.shared.counted_pools.add(&self.upstreams.pools());
        self
    }

    /// Identifies the proxy: the same for all its clones, different for any other proxy.
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Returns true if all upstreams have a path in their URL.
    pub fn has_path(&self) -> bool {
        self.context.shared.settings.urls().all(UpstreamUrl::has_path)
    }

    /// Returns the client that the limits count a request for; `None` for a client without limits
    /// of its own.
    pub fn limited_client(&self, request: &Request) -> Option<Client> {
        self.context.shared.limited_client(request)
    }

    /// Handles a request, with a proxy that is borrowed or shared.
    pub fn respond<'a>(
        proxy: impl Deref<Target = ReverseProxy> + 'a,
        mut request: Request,
    ) -> LocalBoxFuture<'a, Response> {
        proxy.start_checks();
        let settings = &proxy.context.shared.settings;
        if settings.grpc_web && GrpcWeb::is_call(&request) {
            // Before the body is converted: the limit is for the received bytes.
            request.body().set_limit(settings.max_body_bytes);
            return async move { GrpcWeb::new().call(request, &WithoutGrpcWeb(&proxy)).await }
                .boxed_local();
        }
        ReverseProxy::forward(proxy, request, None)
    }

    /// Forwards a request, with FastCGI or SCGI for a script.
    ///
    /// Clients may keep many requests with a body waiting, so that the future of one has no space
    /// for what follows the body.
    pub fn forward<'a>(
        proxy: impl Deref<Target = ReverseProxy> + 'a,
        request: Request,
        script: Option<Box<ScriptCall>>,
    ) -> LocalBoxFuture<'a, Response> {
        let via = proxy.context.shared.via.as_ref();
        if let Some(response) = hops::respond_locally(&request, via) {
            return ready(response).boxed_local();
        }
        let mut outbound = OutboundRequest::new(request, script);
        if outbound.body_length == Some(0) {
            proxy.request_bodies().copy_to_mirror(&outbound);
            return async move { proxy.send(&mut outbound).await }.boxed_local();
        }
        async move {
            match proxy.request_bodies().prepare(&mut outbound).await {
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

    fn request_bodies(&self) -> RequestBodies<'_> {
        RequestBodies { context: &self.context, mirror: self.mirror.as_ref() }
    }

    /// Sends a request, with retries, until there is a response.
    ///
    /// Without `async`, the future of a request to fixed upstreams contains no other.
    fn send<'a>(
        &'a self,
        outbound: &'a mut OutboundRequest,
    ) -> impl Future<Output = Response> + 'a {
        match &self.upstreams {
            WorkerUpstreams::Fixed { group, .. } if !self.shared.groups.is_edited() => {
                Either::Left(self.send_to(group, outbound))
            }
            upstreams => Either::Right(Box::pin(async {
                let group = self.resolve_group(upstreams).await;
                self.send_to(&group, outbound).await
            })),
        }
    }

    fn send_to<'a>(
        &'a self,
        group: &'a WorkerGroup,
        outbound: &'a mut OutboundRequest,
    ) -> impl Future<Output = Response> + 'a {
        let (context, request) = (&self.context, &outbound.request);
        let sticky = context.shared.sticky.as_ref();
        let of_session = sticky.and_then(|sticky| sticky.find(request, &group.tags));
        let key = if group.balancer.needs_key() { (self.hash_key)(request) } else { String::new() };
        let key = (!key.is_empty()).then(|| hash(key.as_bytes()));
        let choice = UpstreamChoice { context, group, of_session, key, tried: Vec::new() };
        Forwarding { choice, outbound }.run()
    }

    /// Returns the upstreams of this worker as the DNS and operators have them now.
    async fn resolve_group(&self, upstreams: &WorkerUpstreams) -> Arc<WorkerGroup> {
        let current = self.shared.groups.resolve().await;
        match upstreams {
            WorkerUpstreams::Changing(group) => {
                let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
                if !group.is_of(&current) {
                    *group = self.new_group(current, &group.pools);
                }
                group.clone()
            }
            WorkerUpstreams::Fixed { group, edited } => {
                let mut edited = edited.lock().unwrap_or_else(PoisonError::into_inner);
                match &*edited {
                    Some(edited) if edited.is_of(&current) => edited.clone(),
                    known => {
                        let former = known.as_deref().unwrap_or(group);
                        let newer = self.new_group(current, &former.pools);
                        edited.insert(newer).clone()
                    }
                }
            }
        }
    }

    fn new_group(
        &self,
        current: Arc<UpstreamGroup>,
        former: &[Arc<ConnectionPool>],
    ) -> Arc<WorkerGroup> {
        let seed = self.shared.seed();
        let group = WorkerGroup::new(current, &self.context.shared, former, seed);
        if self.has_metrics {
            self.shared.counted_pools.add(&group.pools);
        }
        Arc::new(group)
    }

    /// Starts the health checks of the upstreams, once per proxy.
    fn start_checks(&self) {
        if let Some(check) = &self.context.shared.settings.check
            && !self.shared.checks_started.swap(true, Relaxed)
        {
            self.shared.groups.start_checks(check);
            if self.shared.groups.has_services() {
                let shared = self.shared.clone();
                tokio::spawn(async move { shared.groups.resolve().await });
            }
        }
    }

    /// Reports the state of the upstreams and the metrics of all clones.
    pub fn report(&self) -> Vec<UpstreamReport> {
        let pools = self.shared.counted_pools.all();
        let report = |upstream: &Arc<Upstream>| {
            let mut report = UpstreamReport::new(upstream);
            let own_pools = pools.iter().filter(|pool| Arc::ptr_eq(&pool.upstream, upstream));
            own_pools.for_each(|pool| pool.add_to(&mut report));
            report
        };
        let group = self.shared.groups.current();
        let reports = group.upstreams.iter().map(report);
        let of_mirror = self.shared.mirror.iter().flat_map(ReverseProxy::report);
        let of_mirror = of_mirror.map(|it| UpstreamReport { is_mirror: true, ..it });
        reports.chain(of_mirror).collect()
    }

    /// Changes the state of an upstream; returns false if there is none with this URL.
    pub fn change_upstream(&self, url: &str, change: ControlChange) -> bool {
        let mirror = self.shared.mirror.as_ref();
        self.shared.groups.change(url, change)
            || mirror.is_some_and(|mirror| mirror.change_upstream(url, change))
    }

    /// Adds an upstream to the route, until the upstreams are
    /// [reset](ReverseProxy::reset_upstreams).
    ///
    /// # Errors
    /// With an invalid URL, and if the upstream cannot be added.
    pub fn add_upstream(&self, text: &str) -> Result<(), String> {
        self.shared.groups.add(text)
    }

    /// Removes an upstream, which gets no further requests; returns false if there is none with
    /// this URL.
    ///
    /// # Errors
    /// If it is the last one.
    pub fn remove_upstream(&self, url: &str) -> Result<bool, String> {
        self.shared.groups.remove(url)
    }

    /// Uses the upstreams of the settings again.
    pub fn reset_upstreams(&self) {
        self.shared.groups.reset();
    }

    /// Takes over the states of upstreams that operators have set, from a former proxy with the
    /// same upstreams.
    pub fn take_over(&self, former: &ReverseProxy) {
        self.shared.groups.take_over(&former.shared.groups);
        let all_former = former.all_upstreams();
        for upstream in self.all_upstreams() {
            let is_same = |former: &&Arc<Upstream>| former.url == upstream.url;
            if let Some(former) = all_former.iter().find(is_same) {
                upstream.take_over(former);
            }
        }
    }

    /// Returns the upstreams, and the server that gets copies of their requests.
    fn all_upstreams(&self) -> Vec<Arc<Upstream>> {
        let of_mirror = self.shared.mirror.iter().flat_map(ReverseProxy::all_upstreams);
        self.shared.groups.current().upstreams.iter().cloned().chain(of_mirror).collect()
    }
}

impl SharedState {
    /// Returns a number that differs between workers: the count of references.
    fn seed(self: &Arc<SharedState>) -> u64 {
        Arc::strong_count(self) as u64
    }
}

impl Application for ReverseProxy {
    fn call(&self, mut request: Request) -> impl Future<Output = Response> {
        // A function that is an application gets GET for HEAD. The upstream gets HEAD, so that it
        // sends no content for which there is no reader.
        if *request.received_method() == Method::HEAD && *request.method() == Method::GET {
            request.set_method(Method::HEAD);
        }
        ReverseProxy::respond(self, request)
    }
}

/// A proxy without the conversion of gRPC-Web.
struct WithoutGrpcWeb<'a>(&'a ReverseProxy);

impl Application for WithoutGrpcWeb<'_> {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        ReverseProxy::forward(self.0, request, None)
    }
}

impl Clone for ReverseProxy {
    fn clone(&self) -> ReverseProxy {
        ReverseProxy::with_own_pools(self.shared.clone(), self.hash_key.clone())
    }
}
