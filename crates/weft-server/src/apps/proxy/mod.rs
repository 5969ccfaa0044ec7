//! A reverse proxy: requests are passed on to upstreams, and what they answer is passed back.
//!
//! # The way of a request
//!
//! 1. `balance` chooses an upstream among those that are up (`health`).
//! 2. `pool` gives the request a connection for itself: one that is kept, or a new one. The
//!    connections belong to the worker; a `wire` is what one is made of.
//! 3. `request` writes a head from what was understood of the client's. The body follows as the
//!    client sends it (`upload`), and `exchange` waits for the head of the response, which the
//!    library's `weft::client` reads. All of that happens in the task of the request: no other
//!    stands between the client and the upstream.
//! 4. What goes wrong before anything of a response has come may be tried once more. Otherwise
//!    the client gets a page (`failure`).
//! 5. `response` passes the head back, `download` the body as it comes; at its end the connection
//!    returns to the pool. After a 101 `tunnel` has both connections.

mod addresses;
mod balance;
mod check;
mod clock;
mod download;
mod exchange;
mod failure;
mod fields;
mod forwarded;
mod health;
mod hops;
mod pool;
mod request;
mod response;
mod settings;
mod tls;
mod traffic;
mod trouble;
mod tunnel;
mod upload;
mod upstream;
mod url;
mod wire;

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use weft::client::Head;
use weft::{Application, Body, Method, Request, Response, StatusCode};

use self::balance::Candidate;
use self::download::{Download, Unsaid};
use self::exchange::Order;
use self::failure::Failure;
use self::health::{Health, Terms};
use self::hops::Via;
use self::pool::{Lease, Pool};
use self::request::{Destination, Wants};
pub(crate) use self::settings::{Balance, Check, Host, Settings};
use self::traffic::Traffic;
pub(crate) use self::traffic::{State, UpstreamReport};
use self::trouble::Seldom;
use self::upload::Upload;
use self::upstream::Upstream;
pub(crate) use self::url::UpstreamUrl;

/// An application that passes requests on. A clone has connections of its own, as each worker
/// should have; what is known of the upstreams' health is shared.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    pools: Vec<Arc<Pool>>,
    /// Where the search for an upstream begins.
    turn: Cell<usize>,
}

struct Shared {
    settings: Arc<Settings>,
    upstreams: Vec<Arc<Upstream>>,
    /// The first request starts the checks, as there is an event loop then.
    is_checked: AtomicBool,
    /// There is nobody to pass requests on to.
    drought: Seldom,
    via: Option<Via>,
    /// The pools of those who count.
    counted: Mutex<Vec<Weak<Pool>>>,
}

impl Proxy {
    /// # Errors
    /// If a setting makes no sense, or certificates cannot be read.
    pub(crate) fn new(settings: Settings) -> Result<Proxy, String> {
        settings.validate()?;
        let is_tls = |place: &url::Place| matches!(place, url::Place::Tcp { tls: true, .. });
        let tls = match settings.upstreams.iter().any(|url| is_tls(&url.place)) {
            true => Some(tls::config(settings.ca.as_deref())?),
            false => None,
        };
        let terms = Terms {
            max_failures: settings.max_failures,
            window: settings.failure_window,
            down_time: settings.down_time,
        };
        let upstream = |url: &url::UpstreamUrl| {
            let health = Health::new(terms, Instant::now());
            Upstream::new(url.clone(), health, &tls).map(Arc::new)
        };
        let upstreams: Vec<_> =
            settings.upstreams.iter().map(upstream).collect::<Result<_, String>>()?;
        Ok(Proxy::with_own_pools(Arc::new(Shared {
            via: Via::new(&settings.via),
            settings: Arc::new(settings),
            upstreams,
            is_checked: AtomicBool::new(false),
            drought: Seldom::default(),
            counted: Mutex::default(),
        })))
    }

    fn with_own_pools(shared: Arc<Shared>) -> Proxy {
        let pool = |upstream: &Arc<Upstream>| Pool::new(upstream.clone(), shared.settings.clone());
        let pools = shared.upstreams.iter().map(pool).collect();
        Proxy { shared, pools, turn: Cell::new(0) }
    }

    /// The same, but what becomes of its requests is counted.
    pub(crate) fn counted(self) -> Proxy {
        let mut counted = self.shared.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.retain(|pool| pool.strong_count() > 0);
        for pool in &self.pools {
            pool.traffic.get_or_init(Traffic::default);
            counted.push(Arc::downgrade(pool));
        }
        drop(counted);
        self
    }

    /// How the upstreams are, and what was counted by all clones.
    pub(crate) fn report(&self) -> Vec<UpstreamReport> {
        let counted = self.shared.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let pools: Vec<Arc<Pool>> = counted.iter().filter_map(Weak::upgrade).collect();
        let report = |upstream: &Arc<Upstream>| {
            let mut report = UpstreamReport::new(upstream);
            let of_it = pools.iter().filter(|pool| Arc::ptr_eq(&pool.upstream, upstream));
            of_it.for_each(|pool| report.add(pool));
            report
        };
        self.shared.upstreams.iter().map(report).collect()
    }

    /// The same for all clones, and for no other proxy.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Passes a request on until there is a response.
    async fn pass_on(&self, mut request: Request) -> Response {
        let settings = &self.shared.settings;
        if *request.method() == Method::CONNECT {
            // RFC 9110 §9.3.6: who asks for that takes us for another kind of proxy.
            return StatusCode::NOT_IMPLEMENTED.into();
        }
        if let Some(response) = hops::turn_back(&request, self.shared.via.as_ref()) {
            return response;
        }
        let mut body = std::mem::take(request.body());
        body.set_limit(settings.max_body_bytes);
        let length = body.length();
        let wants = Wants::of(&request, length);
        let upload = (length != Some(0)).then(|| Box::new(Upload::new(body, wants.go_ahead)));
        let mut order = Order { request, wants, length, upload };
        let mut tried = Vec::new();
        loop {
            let Some(index) = self.choose(&tried) else {
                self.shared.drought.tell("a request has no upstream: none is up");
                return Failure::NoneUp.into_response(None);
            };
            let pool = &self.pools[index];
            let failure = match self.attempt(pool, &mut order, !tried.is_empty()).await {
                Ok(response) => return response,
                Err(failure) => failure,
            };
            match &failure {
                Failure::Full => pool.upstream.was_full(),
                Failure::Shortage(error) => {
                    self.shared.drought.tell(&format!("a request has no upstream: {error}"));
                }
                failure if failure.is_upstreams() => pool.upstream.failed(&failure.reason()),
                _ => {}
            }
            tried.push(index);
            let may_repeat = match failure {
                // Nothing of it was sent.
                Failure::Unreachable(_) => true,
                Failure::Broken(_) | Failure::Stale(_) => order.can_be_repeated(),
                // Whoever has room was chosen first, if it is that.
                _ => false,
            };
            if !may_repeat || tried.len() > settings.max_retries {
                return failure.into_response(Some(&pool.upstream));
            }
        }
    }

    fn choose(&self, tried: &[usize]) -> Option<usize> {
        let count = self.pools.len();
        if count == 1 && !self.pools[0].upstream.health.is_sick() {
            return Some(0);
        }
        let now = Instant::now();
        let candidate = |index: usize| {
            let pool = &self.pools[index];
            let health = &pool.upstream.health;
            Candidate {
                // Where there is no other, leaving it alone would only make it worse.
                is_up: !health.is_sick() && (count == 1 || !health.is_out(now)),
                was_tried: tried.contains(&index),
                is_full: pool.is_full(),
                load: pool.load(),
            }
        };
        let chosen =
            balance::choose(self.shared.settings.balance, count, self.turn.get(), candidate)?;
        self.turn.set((chosen + 1) % count);
        Some(chosen)
    }

    /// Sends a request over one connection and makes the client's response of what comes.
    async fn attempt(
        &self,
        pool: &Arc<Pool>,
        order: &mut Order,
        fresh: bool,
    ) -> Result<Response, Failure> {
        let settings = &self.shared.settings;
        let mut lease = pool.lease(fresh).await?;
        let Order { request, wants, length, .. } = &*order;
        let (upstream, via) = (&pool.upstream.url, self.shared.via.as_ref());
        let (out, to) = (lease.wire.gathered(), Destination { upstream, settings, via });
        if let Err(error) = request::compose(out, request, wants, *length, &to) {
            out.clear();
            lease.give_back();
            return Err(Failure::Client(error));
        }
        let sent = pool.traffic.get().map(|traffic| traffic.begin(fresh));
        let head = exchange::run(&mut lease, order, settings).await?;
        if let Some(sent) = sent {
            sent.answered();
        }
        let response = match head.status {
            StatusCode::SWITCHING_PROTOCOLS => self.hand_over(lease, order, &head)?,
            _ => self.pass_back(lease, order, &head)?,
        };
        pool.upstream.succeeded();
        Ok(response)
    }

    /// Makes the client's response of the upstream's.
    fn pass_back(&self, lease: Lease, order: &mut Order, head: &Head) -> Result<Response, Failure> {
        let settings = &self.shared.settings;
        let mut upload = order.upload.take();
        if let Some(upload) = &mut upload
            && (head.status.is_client_error() || head.status.is_server_error())
        {
            // RFC 9112 §9.5: who gets an error ends the body that nobody wants.
            upload.stop();
        }
        let is_unsaid = *order.request.method() == Method::HEAD
            && head.headers.get_bytes("content-length").is_none();
        let mut download = Download::new(head, lease, upload, settings.body_timeout);
        let body = match download.all_at_hand() {
            Some(_) if is_unsaid => Body::from_http_body(Unsaid),
            Some(bytes) => bytes.into(),
            None if response::is_events(head) => {
                Body::from_http_body(download.with_patience(settings.tunnel_timeout))
            }
            None => Body::from_http_body(download),
        };
        Ok(response::pass_on(head, Response::body(body), self.shared.via.as_ref()))
    }

    /// Connects the two connections that go over to another protocol.
    fn hand_over(&self, lease: Lease, order: &Order, head: &Head) -> Result<Response, Failure> {
        let settings = &self.shared.settings;
        let asked_for = |protocol: &str| {
            let wanted = order.wants.upgrade.as_deref().unwrap_or_default().split(|&b| b == b',');
            wanted.map(<[u8]>::trim_ascii).any(|it| it.eq_ignore_ascii_case(protocol.as_bytes()))
        };
        let Some(protocol) = head.headers.get("upgrade").filter(|protocol| asked_for(protocol))
        else {
            let reason = "it goes over to what nobody has asked for";
            return Err(Failure::BadAnswer(reason.to_owned()));
        };
        let patience = settings.tunnel_timeout;
        let response = Response::upgrade(protocol, async move |client| {
            tunnel::run(client, lease, patience).await;
        });
        Ok(response::pass_on(head, response, self.shared.via.as_ref()))
    }

    /// Begins to ask the upstreams how they are, once.
    fn start_checks(&self) {
        let Some(check) = &self.shared.settings.check else { return };
        if self.shared.is_checked.swap(true, Relaxed) {
            return;
        }
        let check = Arc::new(check.clone());
        for upstream in &self.shared.upstreams {
            tokio::spawn(check::watch(Arc::downgrade(upstream), check.clone()));
        }
    }
}

impl Application for Proxy {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.start_checks();
        self.pass_on(request)
    }
}

impl Clone for Proxy {
    fn clone(&self) -> Proxy {
        Proxy::with_own_pools(self.shared.clone())
    }
}
