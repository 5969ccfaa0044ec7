//! Writes statuses and events, while this process has the lease.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use super::watch::resource;
use crate::objects::ObjectRef;
use crate::plan::ObjectEvent;

/// Number of requests that are sent at the same time.
const CONCURRENCY: usize = 8;

/// Maximum time of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A request to the API server.
#[derive(Debug)]
pub(super) enum Write {
    /// A status for the version of an object.
    Status {
        object: ObjectRef,
        version: String,
        status: Value,
    },
    Event {
        event: ObjectEvent,
        uid: String,
    },
}

/// Sends requests until the channel closes. A status whose object has changed meanwhile is dropped:
/// the change leads to another request.
pub(super) async fn write(client: Client, writes: Receiver<Vec<Write>>) {
    let all = stream::unfold(writes, |mut writes| async {
        writes.recv().await.map(|batch| (stream::iter(batch), writes))
    });
    all.flatten().for_each_concurrent(CONCURRENCY, |write| send(&client, write)).await;
}

async fn send(client: &Client, write: Write) {
    let (what, result) = match write {
        Write::Status { object, version, status } => {
            let result = timeout(REQUEST_TIMEOUT, patch(client, &object, &version, status)).await;
            (format!("the status of {object}"), result)
        }
        Write::Event { event, uid } => {
            let result = timeout(REQUEST_TIMEOUT, create_event(client, &event, &uid)).await;
            (format!("an event about {}", event.object), result)
        }
    };
    match result {
        Ok(Ok(())) => {}
        // The object has changed, or is gone.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
        Ok(Err(error)) => log::warn!("cannot write {what}: {error}"),
        Err(_) => log::warn!("cannot write {what}: the API server does not respond"),
    }
}

async fn patch(
    client: &Client,
    object: &ObjectRef,
    version: &str,
    status: Value,
) -> kube::Result<()> {
    let api = api(client, &object.name.namespace, &resource(object.kind));
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    api.patch_status(&object.name.name, &params, &patch).await.map(drop)
}

fn api(client: &Client, namespace: &str, resource: &ApiResource) -> Api<DynamicObject> {
    match namespace.is_empty() {
        true => Api::all_with(client.clone(), resource),
        false => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

async fn create_event(client: &Client, event: &ObjectEvent, uid: &str) -> kube::Result<()> {
    let kind = GroupVersionKind::gvk("", "v1", "Event");
    let resource = ApiResource::from_gvk_with_plural(&kind, "events");
    let name = &event.object.name;
    let namespace = if name.namespace.is_empty() { "default" } else { &name.namespace };
    let place = event.object.kind.place();
    let version = match place.group {
        "" => place.version.to_owned(),
        group => format!("{group}/{}", place.version),
    };
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut object = DynamicObject::new("", &resource);
    object.metadata.name = None;
    object.metadata.generate_name = Some(format!("{}.", name.name));
    object.data = json!({
        "involvedObject": {
            "apiVersion": version,
            "kind": place.kind,
            "namespace": name.namespace,
            "name": name.name,
            "uid": uid,
        },
        "type": "Warning",
        "reason": event.reason,
        "message": event.message,
        "source": { "component": "weft" },
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    });
    api(client, namespace, &resource).create(&PostParams::default(), &object).await.map(drop)
}
