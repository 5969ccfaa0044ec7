//! The endpoint as an application: a page, the numbers for it, and the numbers for Prometheus.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use weft::middleware::SecurityHeaders;
use weft::sse::{self, Event};
use weft::{Application, Body, Method, Request, Response, StatusCode, header};

use super::prometheus;
use super::register::Register;
use super::snapshot::Snapshot;
use crate::reloadable_router::RouteReceiver;

/// How often a page that is looked at gets numbers.
const PERIOD: Duration = Duration::from_secs(1);

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/page.js");

/// What the page may do: load its own style, script and events, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

#[derive(Clone)]
pub(super) struct Site {
    register: Register,
    line: RouteReceiver,
}

/// For all that the endpoint answers.
pub(super) fn security() -> SecurityHeaders {
    SecurityHeaders::new().content_security_policy(POLICY).with(header::CACHE_CONTROL, "no-store")
}

impl Site {
    /// A site about those in the register, and about the routes that come along the line.
    pub(super) fn new(register: Register, line: RouteReceiver) -> Site {
        Site { register, line }
    }

    /// Reads all numbers, in a thread that may wait: the kernel collects what `/proc` says.
    async fn snapshot(&self) -> Result<Snapshot, StatusCode> {
        let (register, routing) = (self.register.clone(), self.line.borrow().clone());
        let read = tokio::task::spawn_blocking(move || {
            let routing = routing.lock().unwrap_or_else(PoisonError::into_inner);
            Snapshot::take(&register, &routing)
        });
        read.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }

    async fn json(&self) -> Result<String, StatusCode> {
        let snapshot = self.snapshot().await?;
        serde_json::to_string(&snapshot).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }

    async fn answer(&self, request: &Request) -> Result<Response, StatusCode> {
        Ok(match request.path() {
            "/" => Response::html(PAGE),
            "/style.css" => typed("text/css; charset=utf-8", STYLE),
            "/page.js" => typed("text/javascript; charset=utf-8", SCRIPT),
            "/metrics" => typed(prometheus::MEDIA_TYPE, prometheus::text(&self.snapshot().await?)),
            "/status.json" => typed("application/json", self.json().await? + "\n"),
            "/events" => self.events(request),
            _ => Response::not_found(),
        })
    }

    /// The numbers again and again, until the client leaves or the server is to stop.
    fn events(&self, request: &Request) -> Response {
        // A client that reads slowly gets fewer, and none that are old.
        let settings = sse::Settings { capacity: 1, ..sse::Settings::default() };
        let (events, response) = settings.channel(request);
        let site = self.clone();
        tokio::task::spawn_local(async move {
            let mut tick = interval(PERIOD);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = tick.tick() => {}
                    () = events.closed() => return,
                }
                let Ok(json) = site.json().await else { return };
                if events.send(Event::data(json)).await.is_err() {
                    return;
                }
            }
        });
        response
    }
}

fn typed(media_type: &'static str, body: impl Into<Body>) -> Response {
    Response::body(body).with_header(header::CONTENT_TYPE, media_type)
}

impl Application for Site {
    async fn call(&self, request: Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let response = Response::from(StatusCode::METHOD_NOT_ALLOWED);
            return response.with_header(header::ALLOW, "GET, HEAD");
        }
        self.answer(&request).await.unwrap_or_else(Response::from)
    }
}
