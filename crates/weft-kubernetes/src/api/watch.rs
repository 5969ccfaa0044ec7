//! Watches the objects of one kind.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::StreamExt as _;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use crate::objects::{Kind, ObjectName};

/// Field selector of the Secrets that are read: no others may be in the memory of the process.
const TLS_SECRETS: &str = "type=kubernetes.io/tls";

/// A change of objects.
#[derive(Debug)]
pub(super) enum Change {
    Set(Kind, Value),
    Remove(Kind, ObjectName),
    /// All objects of the kind have been received; all others are gone.
    Listed(Kind, BTreeSet<ObjectName>),
}

/// Returns the resource of a kind.
pub(super) fn resource(kind: Kind) -> ApiResource {
    let place = kind.place();
    let kind = GroupVersionKind::gvk(place.group, place.version, place.kind);
    ApiResource::from_gvk_with_plural(&kind, place.plural)
}

/// Sends all changes of the objects of a kind, until the receiver is dropped. Errors of the API
/// server are retried: objects that are known stay in effect.
pub(super) async fn watch(client: Client, kind: Kind, changes: Sender<Change>) {
    let api: Api<DynamicObject> = Api::all_with(client, &resource(kind));
    let mut config = watcher::Config::default();
    if kind == Kind::Secret {
        config = config.fields(TLS_SECRETS);
    }
    let mut events = pin!(watcher::watcher(api, config).default_backoff());
    let mut listed = BTreeSet::new();
    let mut has_warned = false;
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(name(&object));
                set(kind, &object)
            }
            Ok(Event::InitDone) => {
                has_warned = false;
                Some(Change::Listed(kind, std::mem::take(&mut listed)))
            }
            Ok(Event::Apply(object)) => set(kind, &object),
            Ok(Event::Delete(object)) => Some(Change::Remove(kind, name(&object))),
            Err(error) => {
                if !std::mem::replace(&mut has_warned, true) {
                    log::warn!("cannot watch objects of the kind {kind}, trying again: {error}");
                }
                // A cluster may lack the Gateway API.
                let is_unknown = is_not_found(&error) && kind.is_of_gateway_api();
                is_unknown.then(|| Change::Listed(kind, BTreeSet::new()))
            }
        };
        if let Some(change) = change
            && changes.send(change).await.is_err()
        {
            return;
        }
    }
}

fn is_not_found(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404
    )
}

fn name(object: &DynamicObject) -> ObjectName {
    let metadata = &object.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    ObjectName::new(namespace, metadata.name.as_deref().unwrap_or_default())
}

fn set(kind: Kind, object: &DynamicObject) -> Option<Change> {
    let value = serde_json::to_value(object);
    value
        .map_err(|error| log::warn!("cannot read an object of the kind {kind}: {error}"))
        .ok()
        .map(|value| Change::Set(kind, value))
}
