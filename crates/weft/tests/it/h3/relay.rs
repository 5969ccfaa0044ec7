//! A relay of datagrams between one client and a server: a path with a delay, whose server can be
//! replaced.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::Instant;

pub struct Relay {
    pub address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
}

impl Relay {
    /// Relays datagrams with a delay in each direction.
    pub async fn start(server: SocketAddr, delay: Duration) -> Relay {
        Relay::with_interval(server, delay, Duration::ZERO).await
    }

    /// Relays one datagram per interval to the client. Others wait.
    pub async fn with_interval(server: SocketAddr, delay: Duration, interval: Duration) -> Relay {
        let front = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let back = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        let address = front.local_addr().unwrap();
        let server = Arc::new(Mutex::new(server));
        let client = Arc::new(OnceLock::new());
        let (to_server, seen) = (server.clone(), client.clone());
        tokio::spawn(forward(
            front.clone(),
            back.clone(),
            (delay, Duration::ZERO),
            move |sender| {
                let _ = seen.set(sender);
                Some(*to_server.lock().unwrap())
            },
        ));
        let from_server = server.clone();
        tokio::spawn(forward(back, front, (delay, interval), move |sender| {
            // A server that was replaced does not reach the client.
            (sender == *from_server.lock().unwrap()).then(|| *client.get().unwrap())
        }));
        Relay { address, server }
    }

    /// Sends the datagrams of the client to another server.
    pub fn replace_server(&self, server: SocketAddr) {
        *self.server.lock().unwrap() = server;
    }
}

async fn forward(
    from: Arc<UdpSocket>,
    to: Arc<UdpSocket>,
    (delay, interval): (Duration, Duration),
    destination: impl Fn(SocketAddr) -> Option<SocketAddr>,
) {
    let mut next = Instant::now();
    loop {
        let mut buffer = vec![0; 2_048];
        let Ok((length, sender)) = from.recv_from(&mut buffer).await else { continue };
        let Some(destination) = destination(sender) else { continue };
        let to = to.clone();
        let due = next.max(Instant::now() + delay);
        next = due + interval;
        tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            let _ = to.send_to(&buffer[..length], destination).await;
        });
    }
}
