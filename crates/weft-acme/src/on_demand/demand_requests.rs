//! Handshakes that wait for the certificate of a name.

use std::future::ready;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::error::TrySendError::Full;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::time::timeout;
use weft::client_limit::{Client, ClientLimit, ClientLimitSettings};
use weft::tls::{IdentitySource, ObtainIdentity};

use super::on_demand_settings::OnDemandSettings;
use crate::name::Name;

/// Maximum number of handshakes that wait for a certificate. One client has half of them.
pub(super) const MAX_WAITING: usize = 1_024;

/// Passes the requests of handshakes to the manager. Clones share their state.
#[derive(Clone)]
pub(crate) struct DemandRequests(Arc<Shared>);

struct Shared {
    settings: Mutex<Option<Arc<OnDemandSettings>>>,
    waiting: ClientLimit,
    requests: Sender<DemandRequest>,
}

/// A handshake that waits for the certificate of a name.
pub(crate) struct DemandRequest {
    pub(crate) name: Name,
    pub(crate) client: Option<Client>,
    /// Closed if the client has left.
    pub(crate) reply: oneshot::Sender<Result<(), String>>,
}

impl DemandRequests {
    pub(crate) fn new(
        settings: Option<Arc<OnDemandSettings>>,
    ) -> (DemandRequests, Receiver<DemandRequest>) {
        let (requests, receiver) = channel(MAX_WAITING);
        let waiting = ClientLimit::new(ClientLimitSettings::new(MAX_WAITING));
        (
            DemandRequests(Arc::new(Shared { settings: Mutex::new(settings), waiting, requests })),
            receiver,
        )
    }

    pub(crate) fn set_settings(&self, settings: Option<Arc<OnDemandSettings>>) {
        *self.0.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }
}

impl IdentitySource for DemandRequests {
    fn obtain(&self, name: &str, client: Option<IpAddr>) -> Option<ObtainIdentity> {
        let settings = self.0.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let name: Name = name.parse().ok().filter(|name| settings.may_permit(name))?;
        if name.ip().is_some() || name.is_wildcard() {
            return None;
        }
        let client = client.map(Client::new);
        let (reply, received) = oneshot::channel();
        let request = DemandRequest { name: name.clone(), client, reply };
        let permit = self.0.waiting.try_acquire(client);
        // If the manager has ended, there is no reply.
        let is_passed_on = || !matches!(self.0.requests.try_send(request), Err(Full(_)));
        let Some(permit) = permit.filter(|_| is_passed_on()) else {
            let reason = format!(
                "no certificate for {name}: too many handshakes wait for one, {MAX_WAITING} of all \
                 clients or half as many of this client"
            );
            return Some(Box::pin(ready(Err(reason))));
        };
        Some(Box::pin(async move {
            let _permit = permit;
            let result = match timeout(settings.timeout, received).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err("its order was aborted".to_owned()),
                Err(_) => Err("its order has not ended within `on_demand_timeout`".to_owned()),
            };
            result.map_err(|reason| format!("no certificate for {name}: {reason}"))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_that_wait_are_bounded() {
        let patterns = vec!["*.example.org".parse().unwrap()];
        let settings = OnDemandSettings { patterns, ..OnDemandSettings::default() };
        let (source, receiver) = DemandRequests::new(Some(Arc::new(settings)));
        let [one, other] = [1, 2].map(|last| Some(IpAddr::from([192, 0, 2, last])));
        assert!(source.obtain("a.example", one).is_none());
        assert!(source.obtain("*.example.org", one).is_none());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let wait = |client| source.obtain("a.example.org", client).unwrap();
            let mut waiting = Vec::new();
            // One client gets half of the places.
            for client in [one, other] {
                waiting.extend((0..MAX_WAITING / 2).map(|_| wait(client)));
                let reason = wait(client).await.unwrap_err();
                assert!(reason.contains("too many handshakes wait"), "{reason}");
            }
            // The manager ends.
            drop(receiver);
            for future in waiting {
                assert!(future.await.unwrap_err().ends_with("its order was aborted"));
            }
            assert!(wait(one).await.unwrap_err().ends_with("its order was aborted"));
        });
    }
}
