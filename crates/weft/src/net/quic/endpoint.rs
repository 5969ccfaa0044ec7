//! An endpoint: the datagrams of a worker's sockets, and the connections that they belong to.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{ConnectionHandle, DatagramEvent, EcnCodepoint, Incoming, Transmit};
use tokio::sync::mpsc;

use crate::net::quic::config::{self, QuicConfig};
use crate::net::quic::connection_id::{WorkerIds, destination, generation_of};
use crate::net::quic::processes::{Forwarded, Origin, Processes};
use crate::net::quic::socket::{Batch, UdpSocket};
use crate::net::quic::unregistered::Unregistered;
use crate::net::quic::workers::AddressWorkers;
use crate::panic::catch_panic_sync;
use crate::sys::OwnedFd;

/// Maximum number of batches that are received before the connections get their turn.
const MAX_BATCHES: usize = 4;

/// Maximum number of datagrams that wait for a connection. Its task runs after each few batches.
const MAX_INBOX: usize = 1 << 12;

/// Maximum number of empty queues that are kept, and the maximum capacity of each.
const MAX_SPARE_QUEUES: usize = 64;
const MAX_SPARE_EVENTS: usize = 64;

/// Number of connections in a handshake above which clients must prove their address (RFC 9000
/// §8.1.2).
const MAX_UNPROVEN_HANDSHAKES: usize = 64;

/// The sockets of a worker for one address, with its connections.
pub(crate) struct Endpoint {
    /// The first one sends. More than one were inherited from a process with more workers.
    sockets: Vec<UdpSocket>,
    endpoint: RefCell<quinn_proto::Endpoint>,
    /// The connections, by their handles.
    inboxes: RefCell<Vec<Option<Rc<Inbox>>>>,
    workers: AddressWorkers,
    forwarded: RefCell<mpsc::Receiver<Forwarded>>,
    processes: Processes,
    /// Channels to processes that take over the sockets.
    successors: RefCell<mpsc::Receiver<OwnedFd>>,
    batch: RefCell<Batch>,
    /// Storage of output, used by one connection at a time.
    output: RefCell<Vec<u8>>,
    /// Empty queues for the datagrams of connections. A connection without datagrams has no queue,
    /// so that idle connections need less memory.
    spare_events: RefCell<Vec<VecDeque<quinn_proto::ConnectionEvent>>>,
    handshakes: Cell<usize>,
    /// Task that receives, woken when a connection has ended.
    receiver: RefCell<Option<Waker>>,
}

/// The datagrams of a connection that its task has not processed.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) events: RefCell<VecDeque<quinn_proto::ConnectionEvent>>,
    pub(super) waker: RefCell<Option<Waker>>,
}

/// A connection that a client attempts to open.
pub(crate) struct Attempt(Incoming);

impl Endpoint {
    /// Registers the sockets with the event loop of the current thread.
    pub(crate) fn register(unregistered: Unregistered) -> io::Result<Rc<Endpoint>> {
        let Unregistered { sockets, shared, keys, generation, worker, .. } = unregistered;
        let Unregistered { workers, forwarded, predecessors, successors, .. } = unregistered;
        let config = Arc::new(config::endpoint(&keys, generation, worker));
        let sockets: io::Result<Vec<_>> =
            sockets.into_iter().map(|socket| socket.register()).collect();
        Ok(Rc::new(Endpoint {
            sockets: sockets?,
            endpoint: RefCell::new(quinn_proto::Endpoint::new(config, None, true, None)),
            inboxes: RefCell::default(),
            workers: AddressWorkers {
                ids: WorkerIds { generation, worker, mask: keys.ids.clone() },
                shared,
                senders: workers,
            },
            forwarded: RefCell::new(forwarded),
            processes: Processes::register(generation, predecessors)?,
            successors: RefCell::new(successors),
            batch: RefCell::new(Batch::new()),
            output: RefCell::default(),
            spare_events: RefCell::default(),
            handshakes: Cell::new(0),
            receiver: RefCell::default(),
        }))
    }

    /// Accepts connections with this configuration from now on.
    pub(crate) fn set_config(&self, config: &QuicConfig) {
        self.endpoint.borrow_mut().set_server_config(Some(config.0.clone()));
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.socket().address()
    }

    pub(crate) fn has_connections(&self) -> bool {
        self.endpoint.borrow().open_connections() > 0
    }

    /// Returns true if another process receives from the sockets.
    pub(crate) fn has_successor(&self) -> bool {
        self.processes.has_successor()
    }

    /// Receives datagrams, and gives them to their connections. Stays pending, unless a client
    /// attempts to open a connection or a socket fails. Once no connections are accepted, a
    /// successor receives all datagrams and forwards the datagrams of this process.
    pub(crate) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        attempts: &mut Vec<Attempt>,
        is_accepting: bool,
    ) -> Poll<io::Result<()>> {
        self.receiver.replace(Some(cx.waker().clone()));
        let mut is_pending = self.poll_processes(cx, attempts).is_pending();
        if is_accepting || !self.has_successor() {
            for socket in &self.sockets {
                is_pending &= self.poll_socket(socket, cx, attempts)?.is_pending();
            }
        }
        is_pending &= self.poll_forwarded(cx, attempts).is_pending();
        match is_pending && attempts.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }

    /// Receives from a socket. Ready if there may be more.
    fn poll_socket(
        &self,
        socket: &UdpSocket,
        cx: &mut Context<'_>,
        attempts: &mut Vec<Attempt>,
    ) -> io::Result<Poll<()>> {
        let batch = &mut *self.batch.borrow_mut();
        for _ in 0..MAX_BATCHES {
            let Poll::Ready(count) = socket.poll_receive(cx, batch) else {
                return Ok(Poll::Pending);
            };
            let now = Instant::now();
            for (meta, datagram) in batch.datagrams(count?) {
                let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
                let origin = Origin { client: meta.addr, local_ip: meta.dst_ip, ecn };
                let generation = destination(datagram).map(generation_of);
                let is_forwarded = generation
                    .is_some_and(|generation| self.processes.forward(generation, origin, datagram));
                if !is_forwarded {
                    self.receive(now, origin, datagram, attempts);
                }
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Registers the successor, and receives datagrams from other processes. A datagram is
    /// forwarded to at most one process: this method never forwards it to another process.
    fn poll_processes(&self, cx: &mut Context<'_>, attempts: &mut Vec<Attempt>) -> Poll<()> {
        while let Poll::Ready(Some(end)) = self.successors.borrow_mut().poll_recv(cx) {
            self.processes.set_successor(end);
        }
        self.processes.poll_receive(cx, |origin, datagram| {
            self.receive(Instant::now(), origin, datagram, attempts);
        })
    }

    fn poll_forwarded(&self, cx: &mut Context<'_>, attempts: &mut Vec<Attempt>) -> Poll<()> {
        let forwarded = &mut *self.forwarded.borrow_mut();
        for _ in 0..MAX_BATCHES {
            match forwarded.poll_recv(cx) {
                Poll::Ready(Some(Forwarded { origin, bytes })) => {
                    self.process(Instant::now(), origin, bytes, attempts);
                }
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    /// Processes a datagram, or forwards it to its worker. A full queue loses it, as the network
    /// may.
    fn receive(&self, now: Instant, origin: Origin, datagram: &[u8], attempts: &mut Vec<Attempt>) {
        let bytes = BytesMut::from(datagram);
        match self.workers.other(origin.client, datagram) {
            Some(worker) => drop(worker.try_send(Forwarded { origin, bytes })),
            None => self.process(now, origin, bytes, attempts),
        }
    }

    fn process(&self, now: Instant, origin: Origin, bytes: BytesMut, attempts: &mut Vec<Attempt>) {
        let output = &mut *self.output.borrow_mut();
        output.clear();
        let Origin { client, local_ip, ecn } = origin;
        let mut endpoint = self.endpoint.borrow_mut();
        let event = contained(|| endpoint.handle(now, client, local_ip, ecn, bytes, output));
        drop(endpoint);
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => self.deliver(handle, event),
            Some(DatagramEvent::NewConnection(incoming)) => attempts.push(Attempt(incoming)),
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit, output),
        }
    }

    fn deliver(&self, handle: ConnectionHandle, event: quinn_proto::ConnectionEvent) {
        let inboxes = self.inboxes.borrow();
        let Some(Some(inbox)) = inboxes.get(handle.0) else { return };
        let mut events = inbox.events.borrow_mut();
        if events.capacity() == 0
            && let Some(spare) = self.spare_events.borrow_mut().pop()
        {
            *events = spare;
        }
        if events.len() < MAX_INBOX {
            events.push_back(event);
        }
        if let Some(waker) = inbox.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Sends a response that belongs to no connection. It is lost if the socket accepts nothing.
    fn respond(&self, transmit: &Transmit, output: &[u8]) {
        let _ = self.socket().try_send(transmit, &output[..transmit.size]);
    }

    // -- attempts

    /// Returns true if a client must prove its address first: many handshakes are in progress.
    pub(crate) fn requires_proof(&self, attempt: &Attempt) -> bool {
        self.handshakes.get() >= MAX_UNPROVEN_HANDSHAKES
            && !attempt.follows_retry()
            && !attempt.0.remote_address_validated()
    }

    /// Accepts a connection. Returns `None` if its first packet is invalid.
    pub(super) fn accept(
        &self,
        Attempt(incoming): Attempt,
        config: &QuicConfig,
    ) -> Option<(ConnectionHandle, quinn_proto::Connection, Rc<Inbox>)> {
        let output = &mut *self.output.borrow_mut();
        output.clear();
        let (now, config) = (Instant::now(), config.0.clone());
        let mut endpoint = self.endpoint.borrow_mut();
        let accepted = contained(|| Some(endpoint.accept(incoming, now, output, Some(config))))?;
        drop(endpoint);
        match accepted {
            Ok((handle, connection)) => Some((handle, connection, self.add_inbox(handle))),
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.respond(&transmit, output);
                }
                None
            }
        }
    }

    /// Refuses a connection.
    pub(crate) fn refuse(&self, Attempt(incoming): Attempt) {
        let output = &mut *self.output.borrow_mut();
        output.clear();
        let transmit = self.endpoint.borrow_mut().refuse(incoming, output);
        self.respond(&transmit, output);
    }

    /// Drops an attempt, which its client repeats.
    pub(crate) fn ignore(&self, Attempt(incoming): Attempt) {
        self.endpoint.borrow_mut().ignore(incoming);
    }

    /// Requests a proof of the client's address.
    pub(crate) fn retry(&self, Attempt(incoming): Attempt) {
        let output = &mut *self.output.borrow_mut();
        output.clear();
        if let Ok(transmit) = self.endpoint.borrow_mut().retry(incoming, output) {
            self.respond(&transmit, output);
        }
    }

    fn add_inbox(&self, handle: ConnectionHandle) -> Rc<Inbox> {
        let inbox = Rc::<Inbox>::default();
        let inboxes = &mut *self.inboxes.borrow_mut();
        if inboxes.len() <= handle.0 {
            inboxes.resize(handle.0 + 1, None);
        }
        inboxes[handle.0] = Some(inbox.clone());
        inbox
    }

    // -- for connections

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.sockets[0]
    }

    pub(super) fn output(&self) -> &RefCell<Vec<u8>> {
        &self.output
    }

    /// Keeps an empty queue for the next connection that receives datagrams.
    pub(super) fn recycle_events(&self, events: VecDeque<quinn_proto::ConnectionEvent>) {
        let mut spare = self.spare_events.borrow_mut();
        if spare.len() < MAX_SPARE_QUEUES && events.capacity() <= MAX_SPARE_EVENTS {
            spare.push(events);
        }
    }

    pub(super) fn handshake_started(&self) {
        self.handshakes.set(self.handshakes.get() + 1);
    }

    pub(super) fn handshake_ended(&self) {
        self.handshakes.set(self.handshakes.get() - 1);
    }

    /// Processes an event of a connection. Returns the event that the connection must process in
    /// turn.
    pub(super) fn on_event(
        &self,
        handle: ConnectionHandle,
        event: quinn_proto::EndpointEvent,
    ) -> Option<quinn_proto::ConnectionEvent> {
        if event.is_drained() {
            self.inboxes.borrow_mut()[handle.0] = None;
            if let Some(waker) = self.receiver.borrow_mut().take() {
                waker.wake();
            }
        }
        self.endpoint.borrow_mut().handle_event(handle, event)
    }
}

/// Runs code of the transport for a datagram. If it panics, the datagram is lost, or the attempt to
/// connect, and the endpoint continues.
fn contained<T>(code: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_panic_sync(code).ok().flatten()
}

impl Attempt {
    pub(crate) fn client(&self) -> SocketAddr {
        self.0.remote_address()
    }

    /// Returns true if the client has proven its address by a Retry packet of this process.
    pub(crate) fn follows_retry(&self) -> bool {
        !self.0.may_retry()
    }

    pub(crate) fn local_ip(&self) -> Option<std::net::IpAddr> {
        self.0.local_ip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_transport_is_contained() {
        let endpoint = RefCell::new(0);
        for (datagram, expected) in [(1, Some(1)), (0, None), (5, Some(5))] {
            let event = contained(|| {
                *endpoint.borrow_mut() += 1;
                assert_ne!(datagram, 0, "a datagram at which the transport panics");
                Some(datagram)
            });
            assert_eq!(event, expected);
        }
        assert_eq!(*endpoint.borrow(), 3);
    }
}
