//! UDP: the datagrams of a client and of its upstream, as a session.
//!
//! A task receives the datagrams of all clients, and each session has a task of its own, with a
//! socket that is connected to the upstream. So a session gets datagrams of its upstream only, and
//! a client gets as many as the upstream has sent for it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use weft_upstream::copy::{CopySide, CountBytes};

use crate::open::active_plan::{ActivePlan, PlanReceiver};
use crate::stream::record::{ByteCounts, ConnectionRecord, StreamProtocol};
use crate::stream::targets::TargetConnection;
use crate::stream::{End, Stream};

/// Maximum number of datagrams of a client that wait for the upstream. Further ones are dropped.
const MAX_QUEUED: usize = 8;

/// Number of datagrams that are received before other tasks get a turn.
const RECEIVE_BUDGET: usize = 64;

/// Time for responses of upstreams after the socket for clients was closed.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Replaces idle times that are longer: the sum of a time and the longest one is not representable.
const MAX_IDLE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The task that receives the datagrams of a socket.
pub(super) struct Receiving {
    pub(super) socket: Arc<UdpSocket>,
    /// The address in the configuration.
    pub(super) address: String,
    pub(super) plans: PlanReceiver,
    pub(super) active: mpsc::Sender<Infallible>,
}

/// Sessions by the address of their client.
struct Sessions {
    by_client: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>>,
    /// Gets the clients of sessions that have ended, so that it has no more items than there were
    /// sessions.
    ended: mpsc::UnboundedSender<SocketAddr>,
}

impl Receiving {
    pub(super) async fn run(self, mut closed: oneshot::Receiver<Infallible>) {
        let (ended, mut all_ended) = mpsc::unbounded_channel();
        let mut sessions = Sessions { by_client: HashMap::new(), ended };
        loop {
            tokio::select! {
                ready = self.socket.readable() => match ready {
                    Ok(()) => {
                        self.receive_all(&mut sessions);
                        // There may be more datagrams, and the socket does not notify again.
                        tokio::task::yield_now().await;
                    }
                    Err(error) => return log::error!("the stream {}: {error}", self.address),
                },
                Some(client) = all_ended.recv() => {
                    // The client may have begun another session.
                    if sessions.by_client.get(&client).is_some_and(mpsc::Sender::is_closed) {
                        sessions.by_client.remove(&client);
                    }
                }
                _ = &mut closed => return,
            }
        }
    }

    fn receive_all(&self, sessions: &mut Sessions) {
        let plan = self.plans.borrow().clone();
        // `None`: a reload has removed the stream.
        let stream = plan.opened.streams.get(&self.address);
        let max_bytes = stream.map_or(0, |stream| stream.settings().max_datagram_bytes);
        for _ in 0..RECEIVE_BUDGET {
            let mut datagram = Vec::with_capacity(max_bytes + 1);
            match self.socket.try_recv_buf_from(&mut datagram) {
                Ok((length, _)) if length > max_bytes => {}
                Ok((_, client)) => {
                    if let Some(stream) = stream {
                        datagram.shrink_to_fit();
                        self.pass_on(datagram, client, (&plan, stream), sessions);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The error of a response that a client did not accept.
                Err(_) => {}
            }
        }
    }

    /// Passes a datagram to the session of its client, or to a new one.
    fn pass_on(
        &self,
        datagram: Vec<u8>,
        client: SocketAddr,
        (plan, stream): (&ActivePlan, &Arc<Stream>),
        sessions: &mut Sessions,
    ) {
        let datagram = match sessions.by_client.get(&client) {
            None => datagram,
            Some(session) => match session.try_send(datagram) {
                Ok(()) | Err(TrySendError::Full(_)) => return,
                Err(TrySendError::Closed(datagram)) => datagram,
            },
        };
        if !stream.allows(client.ip()) {
            return stream.count_denied();
        }
        let Some(permit) = stream.admit(client.ip()) else {
            // Not logged one by one: their senders may be forged, in any number.
            let message = "a datagram was dropped: too many sessions, in total or of its client";
            return stream.refuse(&self.address, message);
        };
        let Ok(local) = self.socket.local_addr() else { return };
        let (sender, datagrams) = mpsc::channel(MAX_QUEUED);
        // Cannot fail: the queue is empty.
        let _ = sender.try_send(datagram);
        sessions.by_client.insert(client, sender);
        let log = stream.settings().access_log.as_ref().and_then(|to| plan.logs.stream(to));
        let stream = stream.clone();
        let record = ConnectionRecord::new(
            stream.clone(),
            log.cloned(),
            StreamProtocol::Udp,
            (client, local),
        );
        let session = Session { socket: self.socket.clone(), client, datagrams };
        let (active, ended) = (self.active.clone(), sessions.ended.clone());
        tokio::spawn(async move {
            session.run(&stream, record).await;
            drop((permit, active));
            // Fails if the socket was closed.
            let _ = ended.send(client);
        });
    }
}

/// The datagrams of one client.
struct Session {
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    datagrams: mpsc::Receiver<Vec<u8>>,
}

impl Session {
    async fn run(self, stream: &Stream, mut record: ConnectionRecord) {
        record.end = self.serve(stream, &mut record).await;
    }

    async fn serve(self, stream: &Stream, record: &mut ConnectionRecord) -> End {
        let Some(targets) = stream.targets(None) else { return End::UnknownName };
        let connected =
            targets.connect_datagrams(self.client.ip(), stream.settings().connect_timeout);
        let Some(mut connected) = Box::pin(connected).await else { return End::Unreachable };
        record.upstream = Some(connected.upstream().to_string());
        match self.forward(stream, &mut connected, record).await {
            Ok(end) => end,
            // Such as a refusal, which the kernel has got for an earlier datagram.
            Err(error) => {
                connected.upstream().record_failure(&error.to_string());
                End::UpstreamError
            }
        }
    }

    /// Forwards datagrams in both directions until the end of the session.
    ///
    /// # Errors
    /// Errors of the upstream's socket.
    async fn forward(
        mut self,
        stream: &Stream,
        connected: &mut TargetConnection<UdpSocket>,
        record: &ConnectionRecord,
    ) -> io::Result<End> {
        let settings = stream.settings();
        let (upstream, metrics) = connected.parts();
        let counts = ByteCounts { connection: &record.traffic, upstream: metrics };
        let mut idle_time = settings.udp_idle_timeout.min(MAX_IDLE);
        let mut idle = pin!(sleep_until(Instant::now() + idle_time));
        let mut expected_responses = 0u64;
        let (mut is_open, mut has_responded) = (true, false);
        loop {
            tokio::select! {
                datagram = self.datagrams.recv(), if is_open => match datagram {
                    Some(datagram) => {
                        upstream.send(&datagram).await?;
                        counts.add(CopySide::A, datagram.len() as u64);
                        expected_responses += settings.udp_responses;
                    }
                    None => {
                        is_open = false;
                        idle_time = idle_time.min(CLOSE_GRACE);
                    }
                },
                received = receive(upstream, settings.max_datagram_bytes) => {
                    let Some(datagram) = received? else { continue };
                    has_responded = true;
                    if settings.udp_responses > 0 && expected_responses == 0 {
                        continue;
                    }
                    // Fails if the client has left; others may use its address.
                    if self.socket.send_to(&datagram, self.client).await.is_ok() {
                        counts.add(CopySide::B, datagram.len() as u64);
                    }
                    expected_responses = expected_responses.saturating_sub(1);
                    let is_last = settings.udp_responses > 0 && expected_responses == 0;
                    if is_last && self.datagrams.is_empty() {
                        break;
                    }
                }
                () = &mut idle => break,
            }
            idle.as_mut().reset(Instant::now() + idle_time);
        }
        if has_responded {
            connected.upstream().record_success();
        }
        let is_complete = settings.udp_responses > 0 && expected_responses == 0;
        Ok(if is_complete { End::Closed } else { End::Idle })
    }
}

/// Receives a datagram; `None` if it is too large.
async fn receive(socket: &UdpSocket, max_bytes: usize) -> io::Result<Option<Vec<u8>>> {
    loop {
        let ready = socket.ready(Interest::READABLE | Interest::ERROR).await?;
        if ready.is_error() {
            take_error(socket)?;
        }
        // Allocated after the wait, so that an idle session has no buffer.
        let mut datagram = Vec::with_capacity(max_bytes + 1);
        match socket.try_recv_buf(&mut datagram) {
            Ok(length) => return Ok((length <= max_bytes).then_some(datagram)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the error of a socket, such as a closed port. A socket does not become readable because
/// of an error.
fn take_error(socket: &UdpSocket) -> io::Result<()> {
    let taken = socket.try_io(Interest::ERROR, || match socket.take_error()? {
        Some(error) => Err(error),
        // Another call has returned it.
        None => Err::<(), _>(io::ErrorKind::WouldBlock.into()),
    });
    match taken {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}
