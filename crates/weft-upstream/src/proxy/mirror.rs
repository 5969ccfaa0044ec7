//! Copies of requests for another server, whose responses are discarded.
//!
//! A copy is sent in a task of its own, and delays neither its request nor the response. The number
//! of copies in progress is limited, and so are the time and the body of each; a request beyond
//! these limits is forwarded without a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use weft::Request;
use weft::header::{HeaderName, HeaderValue};

use super::ReverseProxy;
use crate::base::rendezvous::mix;
use crate::head::request_fields::RequestFields;
use crate::health::operator_control::UpstreamMode;
use crate::settings::mirror_settings::{ALL, MirrorSettings};

/// Field that marks a copy.
const MARK: HeaderName = HeaderName::from_static("x-mirror");

/// The copies of one worker.
pub(crate) struct Mirror {
    proxy: Arc<ReverseProxy>,
    share: u32,
    timeout: Duration,
    permits: Arc<Semaphore>,
    /// Number of requests so far. It decides which requests are copied.
    requests: AtomicU64,
}

/// The right to send a copy of a request.
pub(crate) struct MirrorPermit(OwnedSemaphorePermit);

impl Mirror {
    /// Creates the copies of a worker, which are sent by `proxy`. `seed` makes the choices of
    /// workers differ.
    pub(crate) fn new(proxy: ReverseProxy, settings: &MirrorSettings, seed: u64) -> Mirror {
        Mirror {
            proxy: Arc::new(proxy),
            share: settings.share,
            timeout: settings.timeout,
            permits: Arc::new(Semaphore::new(settings.max_copies)),
            requests: AtomicU64::new(seed << 32),
        }
    }

    pub(crate) fn with_metrics(self) -> Mirror {
        Mirror { proxy: Arc::new((*self.proxy).clone().with_metrics()), ..self }
    }

    /// Decides about the next request. `None`: it is not copied.
    pub(crate) fn permit(&self) -> Option<MirrorPermit> {
        // An operator has taken it out: nothing is missing.
        let group = self.proxy.shared.groups.current();
        if group.upstreams.iter().any(|it| it.mode() != UpstreamMode::Up) {
            return None;
        }
        let number = self.requests.fetch_add(1, Relaxed);
        if mix(number) % u64::from(ALL) >= u64::from(self.share) {
            return None;
        }
        let permit = self.permits.clone().try_acquire_owned();
        if permit.is_err() {
            self.count_dropped();
        }
        permit.ok().map(MirrorPermit)
    }

    /// Counts a request that was to be copied.
    pub(crate) fn count_dropped(&self) {
        // A mirror has one fixed upstream.
        for pool in self.proxy.upstreams.pools() {
            pool.metrics.get().into_iter().for_each(|metrics| metrics.count_dropped_copy());
        }
    }

    /// Sends a copy of a request with this body.
    pub(crate) fn send(&self, request: &Request, body: Bytes, MirrorPermit(permit): MirrorPermit) {
        let mut copy = request.without_body();
        if let Some(fields) = RequestFields::of(request) {
            copy.extensions_mut().insert(fields.clone());
        }
        RequestFields::set(&mut copy, MARK, HeaderValue::from_static("1"));
        *copy.body() = body.into();
        let (proxy, limit) = (self.proxy.clone(), self.timeout);
        let exchange = async move {
            let mut response = ReverseProxy::forward(proxy, copy, None).await.into_body();
            while let Ok(Some(_)) = response.chunk().await {}
        };
        tokio::task::spawn_local(async move {
            // The upstream counts its failures.
            let _ = timeout(limit, exchange.boxed_local()).await;
            drop(permit);
        });
    }
}
