//! The record of a tunnel: another protocol on a connection or stream after an upgrade.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::StatusCode;

use crate::clock::deadline::Stopwatch;
use crate::hooks::{Hooks, Record};
use crate::message::record_data::RecordData;
use crate::message::request_head::RequestHead;
use crate::message::upgrade::{TunnelBytes, Upgrade, Upgraded};
use crate::peer::Peer;

/// An upgrade whose handler gets the connection or stream after the response.
pub(crate) struct PendingUpgrade {
    pub(crate) upgrade: Upgrade,
    /// Values for the record of the tunnel, if it is recorded.
    pub(crate) record: Option<Box<TunnelRecord>>,
}

/// Values of the request of a tunnel, for the [`Record`] at its end.
pub(crate) struct TunnelRecord {
    pub(crate) watch: Stopwatch,
    pub(crate) status: StatusCode,
    pub(crate) head: RequestHead,
    /// The client in place of the peer.
    pub(crate) client: Option<Peer>,
    pub(crate) data: Option<Arc<dyn RecordData>>,
}

impl From<Upgrade> for PendingUpgrade {
    fn from(upgrade: Upgrade) -> PendingUpgrade {
        PendingUpgrade { upgrade, record: None }
    }
}

/// Passes the record of a tunnel to the hooks when it is dropped, also if the task of the
/// connection is dropped at the end of a shutdown.
pub(super) struct TunnelGuard<'a> {
    hooks: &'a dyn Hooks,
    peer: &'a Peer,
    record: Box<TunnelRecord>,
    bytes: Arc<TunnelBytes>,
}

impl<'a> TunnelGuard<'a> {
    /// Returns `None` if the tunnel is not recorded.
    pub(super) fn new(
        hooks: Option<&'a dyn Hooks>,
        peer: &'a Peer,
        record: Option<Box<TunnelRecord>>,
        upgraded: &Upgraded,
    ) -> Option<TunnelGuard<'a>> {
        Some(TunnelGuard { hooks: hooks?, peer, record: record?, bytes: upgraded.bytes() })
    }
}

impl Drop for TunnelGuard<'_> {
    fn drop(&mut self) {
        let TunnelRecord { watch, status, head, client, data } = &*self.record;
        self.hooks.on_tunnel_end(&Record {
            peer: client.as_ref().unwrap_or(self.peer),
            head: Some(head),
            request_line: b"",
            status: *status,
            has_response: true,
            body_bytes: self.bytes.sent.load(Relaxed),
            tunnel_received: Some(self.bytes.received.load(Relaxed)),
            is_upgrade: true,
            duration: watch.elapsed(),
            error: None,
            is_complete: true,
            data: data.as_deref(),
        });
    }
}
