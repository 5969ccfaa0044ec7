//! The HTTP/3 endpoints of the server's addresses, as the acceptors see them.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::error::Result;
use crate::net::address::LocalAddress;
use crate::net::connection_limiter::ConnectionLimiter;
use crate::net::http3_descriptor::{Http3Descriptor, Http3Role};
use crate::net::listen::Listener;
use crate::net::quic::EndpointGroup;
use crate::net::secure::SecureAcceptor;
use crate::server::h3::listener::QuicListener;
use crate::sys;

/// The endpoints of all addresses. Dropping them ends the acceptance of connections.
#[derive(Default)]
pub(crate) struct Http3Endpoints(Vec<AddressEndpoints>);

struct AddressEndpoints {
    address: LocalAddress,
    group: EndpointGroup,
    /// Dropped or used when no more connections are to be accepted.
    close: Vec<oneshot::Sender<()>>,
}

impl Http3Endpoints {
    /// Adds the endpoints of a listener, one for each worker.
    ///
    /// # Errors
    /// [`Listen`](crate::ErrorKind::Listen) if the system has no random numbers, and
    /// [`Io`](crate::ErrorKind::Io) if the process has no file descriptors left.
    pub(crate) fn serve(
        &mut self,
        listener: &mut Listener,
        tls: &Arc<dyn SecureAcceptor>,
        limiter: &Arc<ConnectionLimiter>,
        workers: usize,
    ) -> Result<Vec<QuicListener>> {
        let keys = tls.quic().keys()?;
        let (sockets, processes) = (listener.take_http3(), listener.take_http3_processes());
        if sockets.is_empty() {
            return Ok(Vec::new());
        }
        // Where the system does not distribute datagrams, the first worker has all connections.
        let workers = sys::udp_socket_count(workers);
        let (group, endpoints) = EndpointGroup::connect(sockets, processes, workers, &keys)?;
        let with_senders = endpoints.into_iter().map(|endpoint| {
            let (close, closed) = oneshot::channel();
            let (tls, limiter) = (tls.clone(), limiter.clone());
            (QuicListener { endpoint, tls, limiter, closed }, close)
        });
        let (listeners, close) = with_senders.unzip();
        self.0.push(AddressEndpoints { address: listener.local_address().clone(), group, close });
        Ok(listeners)
    }

    /// Stops accepting connections of an address.
    pub(crate) fn close(&mut self, address: &LocalAddress) {
        for endpoints in self.0.extract_if(.., |endpoints| endpoints.address == *address) {
            for close in endpoints.close {
                let _ = close.send(());
            }
        }
    }

    /// Returns the descriptors by which another process takes over all addresses.
    pub(crate) fn descriptors(&self) -> Result<Vec<Http3Descriptor>> {
        let mut descriptors = Vec::new();
        for AddressEndpoints { address, group, .. } in &self.0 {
            let Some(address) = address.address() else { continue };
            let (sockets, processes) = group.pass()?;
            descriptors.extend(sockets.into_iter().map(|descriptor| Http3Descriptor {
                address,
                role: Http3Role::Socket,
                descriptor,
            }));
            descriptors.extend(processes.into_iter().map(|(generation, descriptor)| {
                Http3Descriptor { address, role: Http3Role::Process(generation), descriptor }
            }));
        }
        Ok(descriptors)
    }
}
