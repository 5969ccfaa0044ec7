//! A reverse proxy: requests are passed on to upstreams, and what they answer is passed back.
//!
//! # The way of a request
//!
//! 1. `balance` chooses an upstream among those that are up (`health`).
//! 2. `pool` gives the request a connection for itself: one that is kept, or a new one. The
//!    connections belong to the worker; hyper drives each in a task of its own.
//! 3. `request` builds a head from what was understood of the client's. The body follows as the
//!    client sends it (`upload`).
//! 4. What goes wrong before anything of a response has come may be tried once more. Otherwise
//!    the client gets a page (`failure`).
//! 5. `response` passes the head back, `download` the body as it comes; at its end the connection
//!    returns to the pool. After a 101 `tunnel` has both connections.

mod balance;
mod check;
mod download;
mod failure;
mod forwarded;
mod health;
mod interim;
mod order;
mod pool;
mod request;
mod response;
mod settings;
mod tls;
mod tunnel;
mod upload;
mod upstream;
mod url;

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hyper::Request as Message;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_LENGTH, UPGRADE};
use tokio::time::{sleep, timeout};
use weft::{Application, Body, Method, Request, Response, StatusCode};

use self::balance::Candidate;
use self::download::{Download, Unsaid};
use self::failure::Failure;
use self::health::{Health, Terms};
use self::order::{Failed, Order};
use self::pool::{Lease, Pool};
use self::request::Wants;
pub(crate) use self::settings::{Balance, Check, Host, Settings};
use self::upload::{RequestBody, Turn, Upload};
use self::upstream::Upstream;
pub(crate) use self::url::UpstreamUrl;

/// How long an upstream may think about `Expect: 100-continue`. Many do not know it and wait for
/// the body (RFC 9110 §10.1.1).
const GO_AHEAD: Duration = Duration::from_secs(1);

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
        let settings = Arc::new(settings);
        let is_checked = AtomicBool::new(false);
        Ok(Proxy::with_own_pools(Arc::new(Shared { settings, upstreams, is_checked })))
    }

    fn with_own_pools(shared: Arc<Shared>) -> Proxy {
        let pool = |upstream: &Arc<Upstream>| Pool::new(upstream.clone(), shared.settings.clone());
        let pools = shared.upstreams.iter().map(pool).collect();
        Proxy { shared, pools, turn: Cell::new(0) }
    }

    /// Passes a request on until there is a response.
    async fn pass_on(&self, mut request: Request) -> Response {
        if *request.method() == Method::CONNECT {
            // RFC 9110 §9.3.6: who asks for that takes us for another kind of proxy.
            return StatusCode::NOT_IMPLEMENTED.into();
        }
        let mut body = std::mem::take(request.body());
        body.set_limit(self.shared.settings.max_body_bytes);
        let length = body.length();
        let wants = Wants::of(&request, length);
        let upload = (length != Some(0))
            .then(|| Arc::new(if wants.go_ahead { Upload::held() } else { Upload::default() }));
        let mut unsent = match &upload {
            Some(upload) => RequestBody::Streamed(body, upload.clone()),
            None => RequestBody::Empty,
        };
        let order = Order { request, wants, length, upload };
        let mut tried = Vec::new();
        loop {
            let Some(index) = self.choose(&tried) else {
                return Failure::NoneUp.into_response(None);
            };
            let pool = &self.pools[index];
            let failed = match self.attempt(pool, &order, unsent, !tried.is_empty()).await {
                Ok(response) => return response,
                Err(failed) => failed,
            };
            let Failed { failure, message } = failed;
            if failure.is_upstreams() {
                pool.upstream.failed(&failure.reason());
            }
            tried.push(index);
            unsent = match message {
                Some(body) if tried.len() <= self.shared.settings.max_retries => body,
                _ => return failure.into_response(Some(&pool.upstream)),
            };
        }
    }

    fn choose(&self, tried: &[usize]) -> Option<usize> {
        let count = self.pools.len();
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

    /// Sends a request over one connection and waits for the head of the response.
    async fn attempt(
        &self,
        pool: &Arc<Pool>,
        order: &Order,
        body: RequestBody,
        fresh: bool,
    ) -> Result<Response, Failed> {
        let settings = &self.shared.settings;
        let Order { request, wants, length, .. } = order;
        let head = match request::rebuild(request, wants, *length, &pool.upstream.url, settings) {
            Ok(head) => head,
            Err(error) => return Err(Failed::for_good(Failure::Client(error))),
        };
        let mut lease = match pool.lease(fresh).await {
            Ok(lease) => lease,
            // Whoever has room was chosen first.
            Err(Failure::Full) => return Err(Failed::for_good(Failure::Full)),
            Err(failure) => return Err(Failed { failure, message: Some(body) }),
        };
        let answer = match self.exchange(&mut lease, order, head.map(|()| body)).await {
            Ok(answer) => answer,
            Err(failed) => return Err(failed.over(&lease, order)),
        };
        let response = self.pass_back(lease, order, answer).await.map_err(Failed::for_good)?;
        pool.upstream.succeeded();
        Ok(response)
    }

    async fn exchange(
        &self,
        lease: &mut Lease,
        order: &Order,
        mut message: Message<RequestBody>,
    ) -> Result<hyper::Response<Incoming>, Failed> {
        let settings = &self.shared.settings;
        let interim = order.listen_for_interim(&mut message);
        let mut answer = pin!(lease.sender().try_send_request(message));
        let mut clock = pin!(sleep(settings.response_timeout));
        let mut turn = order.turn();
        let mut go_ahead = pin!(async {
            match &order.upload {
                Some(upload) if order.wants.go_ahead => {
                    sleep(GO_AHEAD).await;
                    upload.release();
                }
                _ => {}
            }
            std::future::pending::<()>().await
        });
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    interim.pass_hints(&order.request);
                    return answer.map_err(|mut error| {
                        let message = error.take_message().map(Message::into_body);
                        order.failed(error.into_error(), message)
                    });
                }
                () = interim.news.notified() => interim.pass_hints(&order.request),
                () = &mut go_ahead => {}
                () = &mut clock => {
                    let now = order.turn();
                    if now == turn && now != Turn::Client {
                        return Err(Failed::for_good(Failure::TooSlow));
                    }
                    turn = now;
                    clock.set(sleep(settings.response_timeout));
                }
            }
        }
    }

    /// Makes the client's response of the upstream's.
    async fn pass_back(
        &self,
        lease: Lease,
        order: &Order,
        answer: hyper::Response<Incoming>,
    ) -> Result<Response, Failure> {
        let settings = &self.shared.settings;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.hand_over(lease, order, answer).await;
        }
        let (parts, incoming) = answer.into_parts();
        if let Some(flaw) = response::flaw(&parts) {
            return Err(Failure::Senseless(flaw));
        }
        if let Some(upload) = &order.upload
            && (parts.status.is_client_error() || parts.status.is_server_error())
        {
            // RFC 9112 §9.5: who gets an error ends the body that nobody wants.
            upload.stop();
        }
        let is_head = *order.request.method() == Method::HEAD;
        let has_length = parts.headers.contains_key(CONTENT_LENGTH);
        let upload = order.upload.clone();
        let body = Download::new(incoming, lease, upload, settings.body_timeout);
        let response = if !body.is_end_stream() {
            Response::body(Body::from_http_body(body))
        } else if is_head && !has_length {
            Response::body(Body::from_http_body(Unsaid))
        } else {
            Response::new(parts.status)
        };
        Ok(response::pass_on(parts, response, &settings.via))
    }

    /// Connects the two connections that go over to another protocol.
    async fn hand_over(
        &self,
        lease: Lease,
        order: &Order,
        mut answer: hyper::Response<Incoming>,
    ) -> Result<Response, Failure> {
        let settings = &self.shared.settings;
        let protocol = answer.headers().get(UPGRADE).cloned();
        let asked_for = |protocol: &[u8]| {
            let wanted = order.wants.upgrade.as_ref().map_or(&b""[..], |wanted| wanted.as_bytes());
            wanted.split(|&b| b == b',').any(|it| it.trim_ascii().eq_ignore_ascii_case(protocol))
        };
        let Some(protocol) = protocol.filter(|protocol| asked_for(protocol.as_bytes())) else {
            return Err(Failure::Senseless("it goes over to what nobody has asked for"));
        };
        let Ok(protocol) = protocol.to_str() else {
            return Err(Failure::Senseless("its protocol is no token"));
        };
        let upgrade = hyper::upgrade::on(&mut answer);
        let upgraded = match timeout(settings.connect_timeout, upgrade).await {
            Ok(Ok(upgraded)) => upgraded,
            Ok(Err(error)) => return Err(Failure::BadAnswer(error)),
            Err(_) => return Err(Failure::TooSlow),
        };
        let patience = settings.tunnel_timeout;
        let response = Response::upgrade(protocol, async move |client| {
            tunnel::run(client, upgraded, patience).await;
            // The connection counts until here.
            drop(lease);
        });
        let (parts, _) = answer.into_parts();
        Ok(response::pass_on(parts, response, &settings.via))
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
