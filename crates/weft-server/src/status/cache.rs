//! `GET /cache`: counts of the response cache. `GET /cache/largest` and `/cache/hottest`: stored
//! responses. `POST /cache/purge`: removes responses, or makes them stale.

use std::sync::Arc;

use serde_json::json;
use weft::cache::{Entry, EntryOrder, FileEntry, Store};
use weft::{Method, Request, Response, StatusCode, header};

use super::config::{has_type, refusal};
use super::permission;
use super::snapshot::CacheTotals;
use crate::open::active_plan::PlanReceiver;
use crate::sections::cluster::{OpenedCluster, PublishedPurge};
use crate::sections::response_cache::PurgeRequest;

/// Maximum size of a purge, in bytes. A URL in the store is shorter.
const MAX_PURGE_BYTES: usize = 16 << 10;

/// Number of responses in a list.
const MAX_ENTRIES: usize = 100;

const DISABLED: &str = "purges are disabled; see `cache_purge` in [status]";

/// Returns true for the paths of this module.
pub(super) fn is_concerned(request: &Request) -> bool {
    request.path() == "/cache" || request.path().starts_with("/cache/")
}

pub(super) async fn respond(request: Request, plans: &PlanReceiver) -> Response {
    let (path, method) = (request.path().to_owned(), request.method().clone());
    let store = plans.borrow().opened.response_store.store.clone();
    let cluster = plans.borrow().opened.cluster.clone();
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
        _ => purge(request, store, cluster).await,
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
    let list = move || (store.entries(order, MAX_ENTRIES), store.files(order, MAX_ENTRIES));
    let listed = tokio::task::spawn_blocking(list).await;
    let entry = |entry: &Entry| {
        json!({
            "url": entry.url, "status": entry.status.as_u16(), "bytes": entry.bytes,
            "hits": entry.hits, "age": entry.age, "ttl": entry.ttl, "tags": entry.tags,
        })
    };
    let file = |it: &FileEntry| json!({ "url": it.url, "bytes": it.bytes, "idle": it.idle });
    match listed {
        Ok((entries, files)) => json_response(&json!({
            "entries": entries.iter().map(entry).collect::<Vec<_>>(),
            "on_disk_files": files.iter().map(file).collect::<Vec<_>>(),
        })),
        Err(_) => Response::from(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Purges the cache of this machine, and passes the purge on to the other machines.
async fn purge(
    mut request: Request,
    store: Store,
    cluster: Option<Arc<OpenedCluster>>,
) -> Response {
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
    let (content, purge) = match PurgeRequest::parse(&bytes) {
        Ok(parsed) => parsed,
        Err(reason) => return invalid(&reason),
    };
    let is_soft = content.soft;
    let done = format!("{} {purge:?}", if is_soft { "made stale:" } else { "removed:" });
    let count = tokio::task::spawn_blocking(move || store.purge(&purge, is_soft)).await;
    let Ok(count) = count else { return Response::from(StatusCode::INTERNAL_SERVER_ERROR) };
    log::info!("a client purged the response cache; {count} responses {done}");
    // Without a cluster there is no other machine.
    let Some(cluster) = cluster else { return json_response(&json!({ "purged": count })) };
    match cluster.publish(content.to_json().as_bytes()).await {
        PublishedPurge::OnlyHere => json_response(&json!({ "purged": count })),
        PublishedPurge::Sent => json_response(&json!({ "purged": count, "cluster": "sent" })),
        PublishedPurge::Pending => {
            log::warn!("the purge waits for the store of the cluster");
            json_response(&json!({ "purged": count, "cluster": "pending" }))
        }
        PublishedPurge::Refused => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the purge has reached this machine only: too many purges wait for the store of the cluster",
        ),
    }
}
