//! The application of the status endpoint: a page, its data as JSON and events, and Prometheus
//! metrics.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use weft::middleware::SecurityHeaders;
use weft::sse::{self, Event};
use weft::{Application, Body, Method, Request, Response, StatusCode, header};

use super::cache;
use super::config;
use super::hosts;
use super::prometheus;
use super::registry::MetricsRegistry;
use super::snapshot::Snapshot;
use super::upstreams;
use crate::config_change::ChangeSender;
use crate::open::active_plan::PlanReceiver;

/// Interval between the events of an open page.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Content security policy of the page: its own style, script and events only.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

#[derive(Clone)]
pub(super) struct Site {
    registry: MetricsRegistry,
    plans: PlanReceiver,
    changes: ChangeSender,
}

/// Returns the middleware that sets security headers on all responses of the endpoint.
pub(super) fn security_headers() -> SecurityHeaders {
    SecurityHeaders::new()
        .content_security_policy(CONTENT_SECURITY_POLICY)
        .with(header::CACHE_CONTROL, "no-store")
}

impl Site {
    /// Creates the application for the metrics in the registry and the routes of the active plan.
    pub(super) fn new(
        registry: MetricsRegistry,
        plans: PlanReceiver,
        changes: ChangeSender,
    ) -> Site {
        Site { registry, plans, changes }
    }

    /// Reads all metrics, on the blocking pool: reads of `/proc` take time.
    async fn snapshot(&self) -> Result<Snapshot, StatusCode> {
        let (registry, active) = (self.registry.clone(), self.plans.borrow().clone());
        let take = move || Snapshot::take(&registry, &active);
        let read = tokio::task::spawn_blocking(take);
        read.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }

    async fn json(&self) -> Result<String, StatusCode> {
        let snapshot = self.snapshot().await?;
        serde_json::to_string(&snapshot).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }

    async fn respond(&self, request: &Request) -> Result<Response, StatusCode> {
        Ok(match request.path() {
            "/" => Response::html(PAGE),
            "/style.css" => typed("text/css; charset=utf-8", STYLE),
            "/page.js" => typed("text/javascript; charset=utf-8", SCRIPT),
            "/metrics" => typed(prometheus::MEDIA_TYPE, prometheus::text(&self.snapshot().await?)),
            "/status.json" => typed("application/json", self.json().await? + "\n"),
            "/ready" => match self.registry.is_stopping() {
                false => Response::text("ready\n"),
                true => Response::text("stopping\n").with_status(StatusCode::SERVICE_UNAVAILABLE),
            },
            "/events" => self.events(request),
            _ => Response::not_found(),
        })
    }

    /// Sends the metrics periodically, until the client disconnects or the server shuts down.
    fn events(&self, request: &Request) -> Response {
        // A slow client gets fewer events, but never outdated ones.
        let settings = sse::SseSettings { capacity: 1, ..sse::SseSettings::default() };
        let (events, response) = settings.channel(request);
        let site = self.clone();
        tokio::task::spawn_local(async move {
            let mut tick = interval(EVENT_INTERVAL);
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
    Response::from_body(body).with_header(header::CONTENT_TYPE, media_type)
}

impl Application for Site {
    async fn call(&self, request: Request) -> Response {
        if !hosts::is_served(&request, &self.plans.borrow().plan) {
            let text =
                "The status endpoint has no such host. Add its name to `hosts` in [status].\n";
            return Response::text(text).with_status(StatusCode::MISDIRECTED_REQUEST);
        }
        if config::is_change(&request) {
            let permitted = self.plans.borrow().plan.status.config_changes;
            return config::respond(request, permitted, &self.changes).await;
        }
        if upstreams::is_change(&request) {
            return upstreams::respond(request, &self.plans, &self.changes).await;
        }
        if cache::is_concerned(&request) {
            return cache::respond(request, &self.plans).await;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let response = Response::from(StatusCode::METHOD_NOT_ALLOWED);
            return response.with_header(header::ALLOW, "GET, HEAD");
        }
        self.respond(&request).await.unwrap_or_else(Response::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_the_script_are_in_the_page() {
        let names = SCRIPT.split("$(\"").skip(1).filter_map(|rest| rest.split('"').next());
        let missing: Vec<_> =
            names.filter(|name| !PAGE.contains(&format!("id=\"{name}\""))).collect();
        assert_eq!(missing, [""; 0]);
    }
}
