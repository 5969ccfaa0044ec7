//! `GET /cache`: counts of the response cache. `GET /cache/largest` and `/cache/hottest`: stored
//! responses. `POST /cache/purge`: removes responses, or makes them stale.

use serde::Deserialize;
use serde_json::json;
use weft::cache::{Entry, EntryOrder, Purge, Store};
use weft::{Method, Request, Response, StatusCode, header};

use super::config::{has_type, refusal};
use super::permission;
use super::snapshot::CacheTotals;
use crate::open::active_plan::PlanReceiver;

/// Maximum size of a purge, in bytes. A URL in the store is shorter.
const MAX_PURGE_BYTES: usize = 16 << 10;

/// Number of responses in a list.
const MAX_ENTRIES: usize = 100;

const DISABLED: &str = "purges are disabled; see `cache_purge` in [status]";

/// The content of a purge: exactly one of the first four.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PurgeRequest {
    url: Option<String>,
    prefix: Option<String>,
    tag: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    soft: bool,
}

impl PurgeRequest {
    fn purge(&self) -> Result<Purge, &'static str> {
        let mut purges = Vec::new();
        purges.extend(self.url.clone().map(Purge::Url));
        purges.extend(self.prefix.clone().map(Purge::Prefix));
        purges.extend(self.tag.clone().map(Purge::Tag));
        purges.extend(self.all.then_some(Purge::All));
        let is_absolute = |text: &str| text.contains("://");
        match (purges.pop(), purges.is_empty()) {
            (Some(Purge::Url(text) | Purge::Prefix(text)), true) if !is_absolute(&text) => {
                Err("a URL begins with its scheme, such as https://example.org/page")
            }
            (Some(purge), true) => Ok(purge),
            _ => Err("expected one of `url`, `prefix`, `tag` and `\"all\": true`"),
        }
    }
}

/// Returns true for the paths of this module.
pub(super) fn is_concerned(request: &Request) -> bool {
    request.path() == "/cache" || request.path().starts_with("/cache/")
}

pub(super) async fn respond(request: Request, plans: &PlanReceiver) -> Response {
    let (path, method) = (request.path().to_owned(), request.method().clone());
    let store = plans.borrow().opened.response_store.store.clone();
    let permitted = plans.borrow().plan.status.cache_purge;
    match (&*path, method) {
        ("/cache", Method::GET | Method::HEAD) => {
            return json_response(&json!(CacheTotals::of(&store)));
        }
        ("/cache/largest" | "/cache/hottest", Method::GET | Method::HEAD)
        | ("/cache/purge", Method::POST) => {}
        ("/cache/purge", _) => return not_allowed("POST"),
        ("/cache" | "/cache/largest" | "/cache/hottest", _) => return not_allowed("GET, HEAD"),
        _ => return Response::not_found(),
    }
    if let Err(reason) = permission::check(&request, permitted, DISABLED) {
        return refusal(StatusCode::FORBIDDEN, reason);
    }
    match &*path {
        "/cache/largest" => list(store, EntryOrder::Largest).await,
        "/cache/hottest" => list(store, EntryOrder::Hottest).await,
        _ => purge(request, store).await,
    }
}

fn not_allowed(methods: &'static str) -> Response {
    Response::from(StatusCode::METHOD_NOT_ALLOWED).with_header(header::ALLOW, methods)
}

fn json_response(json: &serde_json::Value) -> Response {
    Response::from_body(format!("{json}\n")).with_header(header::CONTENT_TYPE, "application/json")
}

/// Lists responses, on the blocking pool: all of them are compared.
async fn list(store: Store, order: EntryOrder) -> Response {
    let entries = tokio::task::spawn_blocking(move || store.entries(order, MAX_ENTRIES)).await;
    let entry = |entry: &Entry| {
        json!({
            "url": entry.url, "status": entry.status.as_u16(), "bytes": entry.bytes,
            "hits": entry.hits, "age": entry.age, "ttl": entry.ttl, "tags": entry.tags,
        })
    };
    match entries {
        Ok(entries) => {
            json_response(&json!({ "entries": entries.iter().map(entry).collect::<Vec<_>>() }))
        }
        Err(_) => Response::from(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

async fn purge(mut request: Request, store: Store) -> Response {
    if !has_type(&request, "application/json") {
        let reason = "expected a purge with `Content-Type: application/json`";
        return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason);
    }
    let body = std::mem::take(request.body());
    let bytes = match body.collect(MAX_PURGE_BYTES).await {
        Ok(bytes) => bytes,
        Err(error) => return Response::from(&error),
    };
    let invalid = |reason: &str| refusal(StatusCode::UNPROCESSABLE_ENTITY, reason);
    let content: PurgeRequest = match serde_json::from_slice(&bytes) {
        Ok(content) => content,
        Err(error) => return invalid(&format!("the purge is not valid: {error}")),
    };
    let purge = match content.purge() {
        Ok(purge) => purge,
        Err(reason) => return invalid(reason),
    };
    let done = format!("{} {purge:?}", if content.soft { "made stale:" } else { "removed:" });
    let count = tokio::task::spawn_blocking(move || store.purge(&purge, content.soft)).await;
    let Ok(count) = count else { return Response::from(StatusCode::INTERNAL_SERVER_ERROR) };
    log::info!("a client purged the response cache; {count} responses {done}");
    json_response(&json!({ "purged": count }))
}
