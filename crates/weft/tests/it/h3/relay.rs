//! A relay of datagrams between one client and a server: a path that delays, loses, repeats,
//! reorders and damages datagrams, whose server and whose addresses can be replaced.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::Instant;

/// Properties of a path.
#[derive(Clone, Default)]
pub struct Path {
    /// Delay in each direction.
    pub delay: Duration,
    /// Interval between the datagrams to the client. Others wait.
    pub interval: Duration,
    /// Treatment of each datagram, by its direction and its number in this direction.
    pub treatment: Option<Treatment>,
    /// Called with each datagram before it is treated.
    pub observer: Option<Observer>,
}

pub type Observer = Arc<dyn Fn(Direction, &[u8]) + Send + Sync>;

pub type Treatment = Arc<dyn Fn(Direction, usize) -> Fate + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// Treatment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Delivered,
    Lost,
    Repeated,
    /// Delivered behind later datagrams.
    Late(Duration),
    Damaged,
}

impl Path {
    /// A path with a treatment of each datagram.
    pub fn with_treatment(
        delay: Duration,
        treatment: impl Fn(Direction, usize) -> Fate + Send + Sync + 'static,
    ) -> Path {
        Path { delay, treatment: Some(Arc::new(treatment)), ..Path::default() }
    }

    /// A path that treats some percent of the datagrams in each direction like this.
    pub fn with_share(delay: Duration, percent: u64, fate: Fate) -> Path {
        let random = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
        Path::with_treatment(delay, move |_, _| {
            let next = |seed: u64| seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let seed = random.fetch_update(SeqCst, SeqCst, |seed| Some(next(seed))).unwrap();
            if (seed >> 33) % 100 < percent { fate } else { Fate::Delivered }
        })
    }
}

pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    path: Path,
    /// The address for the client.
    front: UdpSocket,
    /// The socket that the server sees.
    back: Mutex<Arc<UdpSocket>>,
    server: Mutex<SocketAddr>,
    client: OnceLock<SocketAddr>,
    is_interrupted: AtomicBool,
    /// Numbers and bytes of the datagrams of each direction.
    counts: [AtomicUsize; 2],
    bytes: [AtomicUsize; 2],
}

impl Relay {
    /// Relays datagrams with a delay in each direction.
    pub async fn start(server: SocketAddr, delay: Duration) -> Relay {
        Relay::with_path(server, Path { delay, ..Path::default() }).await
    }

    pub async fn with_path(server: SocketAddr, path: Path) -> Relay {
        let front = bind(Ipv4Addr::LOCALHOST).await;
        let address = front.local_addr().unwrap();
        let shared = Arc::new(Shared {
            path,
            front,
            back: Mutex::new(Arc::new(bind(Ipv4Addr::LOCALHOST).await)),
            server: Mutex::new(server),
            client: OnceLock::new(),
            is_interrupted: AtomicBool::new(false),
            counts: Default::default(),
            bytes: Default::default(),
        });
        tokio::spawn(shared.clone().forward_to_server());
        let back = shared.back.lock().unwrap().clone();
        tokio::spawn(shared.clone().forward_to_client(back));
        Relay { address, shared }
    }

    /// Sends the datagrams of the client to another server.
    pub fn replace_server(&self, server: SocketAddr) {
        *self.shared.server.lock().unwrap() = server;
    }

    /// Gives the client another address for the server. Datagrams for the former address are lost.
    pub async fn rebind(&self, ip: Ipv4Addr) {
        let back = Arc::new(bind(ip).await);
        *self.shared.back.lock().unwrap() = back.clone();
        tokio::spawn(self.shared.clone().forward_to_client(back));
    }

    /// Loses all datagrams, or no longer.
    pub fn interrupt(&self, is_interrupted: bool) {
        self.shared.is_interrupted.store(is_interrupted, SeqCst);
    }

    /// Number of datagrams that were received for a direction.
    pub fn count(&self, direction: Direction) -> usize {
        self.shared.counts[direction as usize].load(SeqCst)
    }

    /// Number of bytes that were received for a direction.
    pub fn bytes(&self, direction: Direction) -> usize {
        self.shared.bytes[direction as usize].load(SeqCst)
    }
}

async fn bind(ip: Ipv4Addr) -> UdpSocket {
    UdpSocket::bind((ip, 0)).await.unwrap()
}

impl Shared {
    async fn forward_to_server(self: Arc<Shared>) {
        let mut schedule = Schedule::new(self.path.delay, Duration::ZERO);
        loop {
            let mut datagram = vec![0; 2_048];
            let Ok((length, client)) = self.front.recv_from(&mut datagram).await else { continue };
            datagram.truncate(length);
            let _ = self.client.set(client);
            let (to, server) = (self.back.lock().unwrap().clone(), *self.server.lock().unwrap());
            for (datagram, due) in self.treat(Direction::ToServer, datagram, &mut schedule) {
                let to = to.clone();
                tokio::spawn(async move {
                    tokio::time::sleep_until(due).await;
                    let _ = to.send_to(&datagram, server).await;
                });
            }
        }
    }

    async fn forward_to_client(self: Arc<Shared>, back: Arc<UdpSocket>) {
        let mut schedule = Schedule::new(self.path.delay, self.path.interval);
        loop {
            let mut datagram = vec![0; 2_048];
            let Ok((length, server)) = back.recv_from(&mut datagram).await else { continue };
            datagram.truncate(length);
            let is_current = Arc::ptr_eq(&back, &self.back.lock().unwrap());
            if !is_current || server != *self.server.lock().unwrap() {
                continue;
            }
            let Some(&client) = self.client.get() else { continue };
            for (datagram, due) in self.treat(Direction::ToClient, datagram, &mut schedule) {
                let shared = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep_until(due).await;
                    let _ = shared.front.send_to(&datagram, client).await;
                });
            }
        }
    }

    /// Returns what a datagram becomes, with the times.
    fn treat(
        &self,
        direction: Direction,
        mut datagram: Vec<u8>,
        schedule: &mut Schedule,
    ) -> Vec<(Vec<u8>, Instant)> {
        let number = self.counts[direction as usize].fetch_add(1, SeqCst);
        self.bytes[direction as usize].fetch_add(datagram.len(), SeqCst);
        if let Some(observer) = &self.path.observer {
            observer(direction, &datagram);
        }
        if self.is_interrupted.load(SeqCst) {
            return Vec::new();
        }
        let treatment = self.path.treatment.as_ref();
        let fate = treatment.map_or(Fate::Delivered, |treatment| treatment(direction, number));
        let due = schedule.next();
        match fate {
            Fate::Delivered => vec![(datagram, due)],
            Fate::Lost => Vec::new(),
            Fate::Repeated => vec![(datagram.clone(), due), (datagram, due)],
            Fate::Late(more) => vec![(datagram, due + more)],
            Fate::Damaged => {
                let middle = datagram.len() / 2;
                datagram[middle] ^= 1;
                vec![(datagram, due)]
            }
        }
    }
}

/// The times of the datagrams of a direction.
struct Schedule {
    delay: Duration,
    interval: Duration,
    next: Instant,
}

impl Schedule {
    fn new(delay: Duration, interval: Duration) -> Schedule {
        Schedule { delay, interval, next: Instant::now() }
    }

    fn next(&mut self) -> Instant {
        let due = self.next.max(Instant::now() + self.delay);
        self.next = due + self.interval;
        due
    }
}
