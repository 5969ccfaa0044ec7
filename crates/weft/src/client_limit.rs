//! Limits on the concurrent uses of a resource, of which one client can use a part only.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use weft_proto::proxy_protocol::IpNetwork;

use crate::message::request::Request;
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits the number of concurrent uses of a resource, in total and per client. Further uses wait
/// in a queue. A client that has reached its limit does not delay the clients behind it.
///
/// Each use holds a [`ClientPermit`]. Work that cannot be cancelled, such as a function in a
/// blocking thread, owns its permit, so that a client which disconnects frees nothing early.
///
/// ```
/// use std::net::IpAddr;
/// use weft::client_limit::{Client, ClientLimit, ClientLimitSettings};
///
/// let settings = ClientLimitSettings { max_per_client: 1, ..ClientLimitSettings::new(2) };
/// let limit = ClientLimit::new(settings);
/// let [one, other] = [1, 2].map(|last| Some(Client::new(IpAddr::from([192, 0, 2, last]))));
/// let permit = limit.try_acquire(one);
/// assert!(permit.is_some() && limit.try_acquire(one).is_none());
/// assert!(limit.try_acquire(other).is_some());
/// ```
#[derive(Clone, Debug)]
pub struct ClientLimit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    uses: Share,
    queued: Share,
    queue_timeout: Duration,
    state: Mutex<State>,
}

/// Settings of a [`ClientLimit`].
#[derive(Clone, Copy, Debug)]
pub struct ClientLimitSettings {
    /// Maximum number of concurrent uses.
    pub max: usize,
    /// Maximum number of concurrent uses of one client. Default 0: half of `max`, rounded up, so
    /// that it takes two clients to exclude all others.
    pub max_per_client: usize,
    /// Maximum number of queued uses. Default 0: none.
    pub max_queued: usize,
    /// Maximum number of queued uses of one client. Default 0: the same share of `max_queued` as
    /// `max_per_client` of `max`.
    pub max_queued_per_client: usize,
    /// Maximum time in the queue. Default zero.
    pub queue_timeout: Duration,
}

impl ClientLimitSettings {
    /// At most `max` uses, half of them by one client, without a queue.
    pub fn new(max: usize) -> ClientLimitSettings {
        ClientLimitSettings {
            max,
            max_per_client: 0,
            max_queued: 0,
            max_queued_per_client: 0,
            queue_timeout: Duration::ZERO,
        }
    }
}

/// A total, the part of it for one client, and the part for all clients of an IPv6 /48 network.
#[derive(Clone, Copy, Debug)]
struct Share {
    max: usize,
    per_client: usize,
    per_site: usize,
}

impl Share {
    /// A site may use half of what one of its clients leaves, too.
    fn new(max: usize, per_client: usize) -> Share {
        let per_client = per_client.min(max);
        Share { max, per_client, per_site: per_client + (max - per_client) / 2 }
    }

    /// Returns true if one more use by a client is within the limits.
    fn permits(&self, uses: &Uses, client: Option<Client>) -> bool {
        let is_within_share = |client: Client| {
            uses.of(client.network()) < self.per_client
                && client.site().is_none_or(|site| uses.of(site) < self.per_site)
        };
        // With few uses in total, the uses of a client need not be looked up.
        uses.total < self.per_client || uses.total < self.max && client.is_none_or(is_within_share)
    }
}

#[derive(Debug, Default)]
struct State {
    uses: Uses,
    queued: Uses,
    queue: VecDeque<Waiter>,
}

/// Numbers of uses: in total, and of each network that has any.
#[derive(Debug, Default)]
struct Uses {
    total: usize,
    by_network: HashMap<Counted, usize, RandomState>,
}

impl Uses {
    fn of(&self, network: Counted) -> usize {
        self.by_network.get(&network).copied().unwrap_or(0)
    }

    fn add(&mut self, client: Option<Client>) {
        self.total += 1;
        for network in client.iter().flat_map(Client::networks) {
            *self.by_network.entry(network).or_default() += 1;
        }
    }

    fn remove(&mut self, client: Option<Client>) {
        self.total -= 1;
        for network in client.iter().flat_map(Client::networks) {
            if let Some(uses) = self.by_network.get_mut(&network) {
                *uses -= 1;
                if *uses == 0 {
                    self.by_network.remove(&network);
                }
            }
        }
    }
}

struct Waiter {
    client: Option<Client>,
    /// Returns true while the waiter is admitted behind all others. `None`: never.
    yields: Option<Box<dyn Fn() -> bool + Send>>,
    /// Closed once the waiter has given up.
    admission: oneshot::Sender<ClientPermit>,
}

impl Waiter {
    fn yields(&self) -> bool {
        self.yields.as_ref().is_some_and(|yields| yields())
    }

    /// Returns true if the clients of two waiters count for the same limits.
    fn shares_network(&self, other: &Waiter) -> bool {
        let mut networks = self.client.iter().flat_map(Client::networks);
        networks.any(|one| other.client.iter().flat_map(Client::networks).any(|it| it == one))
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiter({:?})", self.client)
    }
}

/// A waiter that leaves the queue, and its permit.
type Admission = (oneshot::Sender<ClientPermit>, ClientPermit);

/// Permission for one use of the resource. The use ends when the permit is dropped.
#[derive(Debug)]
pub struct ClientPermit {
    shared: Arc<Shared>,
    client: Option<Client>,
}

/// A client: an IPv4 address or an IPv6 /64 network, because a client with one address of such a
/// network usually has all 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(u64);

/// A client, or a site: an IPv6 /48 network. It is the smallest network that is routed on the
/// Internet, and a customer of a provider usually gets no larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Counted {
    Client(u64),
    Site(u64),
}

impl Client {
    /// Returns the client at an address.
    pub fn new(address: IpAddr) -> Client {
        match address {
            IpAddr::V4(four) => Client::ipv4(four),
            IpAddr::V6(six) => Client::ipv6(six),
        }
    }

    /// Returns the client at the other end of a connection. The conversion of its address to an
    /// `IpAddr` would take 50 instructions.
    pub fn of_peer(address: &SocketAddr) -> Client {
        match address {
            SocketAddr::V4(four) => Client::ipv4(*four.ip()),
            SocketAddr::V6(six) => Client::ipv6(*six.ip()),
        }
    }

    /// Returns the client that a request counts for. `None` for a client without a limit of its
    /// own: one on a Unix socket, and a proxy in `proxies` that has not named its client.
    pub fn of_request(request: &Request, proxies: &[IpNetwork]) -> Option<Client> {
        let address = request.peer().address()?;
        let is_proxy = proxies.iter().any(|network| network.contains(address.ip()));
        (!is_proxy).then(|| Client::of_peer(&address))
    }

    /// Uses ::/32, which IPv6 does not assign to clients.
    fn ipv4(address: Ipv4Addr) -> Client {
        Client(address.to_bits().into())
    }

    fn ipv6(address: Ipv6Addr) -> Client {
        let network = Client((address.to_bits() >> 64) as u64);
        address.to_ipv4_mapped().map_or(network, Client::ipv4)
    }

    fn network(self) -> Counted {
        Counted::Client(self.0)
    }

    /// Returns the site of the client, if it is in an IPv6 network.
    fn site(self) -> Option<Counted> {
        (self.0 >> 32 != 0).then_some(Counted::Site(self.0 >> 16))
    }

    fn networks(&self) -> impl Iterator<Item = Counted> + use<> {
        std::iter::once(self.network()).chain(self.site())
    }
}

impl ClientLimit {
    /// Creates a limit of which nothing is in use.
    pub fn new(settings: ClientLimitSettings) -> ClientLimit {
        let ClientLimitSettings { max, max_queued, queue_timeout, .. } = settings;
        let max_per_client = match settings.max_per_client {
            0 => max.div_ceil(2),
            set => set.min(max),
        };
        let max_queued_per_client = match settings.max_queued_per_client {
            0 => max_queued.saturating_mul(max_per_client).div_ceil(max.max(1)),
            set => set,
        };
        ClientLimit(Arc::new(Shared {
            uses: Share::new(max, max_per_client),
            queued: Share::new(max_queued, max_queued_per_client),
            queue_timeout,
            state: Mutex::default(),
        }))
    }

    /// Acquires a permit; `None` if none is available without a wait. A client that is `None` has
    /// no limit of its own.
    pub fn try_acquire(&self, client: Option<Client>) -> Option<ClientPermit> {
        let mut state = self.0.state();
        self.0.try_admit(&mut state, client)
    }

    /// Acquires a permit, after a wait in the queue if none is available; `None` if the queue is
    /// full or the wait takes too long.
    pub async fn acquire(&self, client: Option<Client>) -> Option<ClientPermit> {
        let admission = {
            let mut state = self.0.state();
            if let Some(permit) = self.0.try_admit(&mut state, client) {
                return Some(permit);
            }
            self.0.try_queue(&mut state, client, None)?
        };
        self.0.admitted(admission).await
    }

    /// Acquires a permit as [`acquire`](ClientLimit::acquire). While `yields` returns true, the use
    /// waits behind all others, and loses its place in a full queue to another one: for example
    /// the use of a client that may have left, by
    /// [`Request::half_close`](crate::Request::half_close).
    pub async fn acquire_yielding(
        &self,
        client: Option<Client>,
        yields: impl Fn() -> bool + Send + 'static,
    ) -> Option<ClientPermit> {
        let admission = {
            let mut state = self.0.state();
            if let Some(permit) = self.0.try_admit(&mut state, client) {
                return Some(permit);
            }
            self.0.try_queue(&mut state, client, Some(Box::new(yields)))?
        };
        self.0.admitted(admission).await
    }

    /// Returns the number of permits in use.
    pub fn in_use(&self) -> usize {
        self.0.state().uses.total
    }

    /// Returns the number of queued uses.
    pub fn queued(&self) -> usize {
        let state = self.0.state();
        state.queue.iter().filter(|waiter| !waiter.admission.is_closed()).count()
    }

    /// Returns the number of uses and of queued uses, abandoned ones included, in constant time.
    pub fn load(&self) -> usize {
        let state = self.0.state();
        state.uses.total + state.queue.len()
    }

    /// Returns true if all permits are in use.
    pub fn is_full(&self) -> bool {
        self.in_use() >= self.0.uses.max
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No waiter is overtaken: while permits are available, all waiters are at their own limits.
    fn try_admit(
        self: &Arc<Shared>,
        state: &mut State,
        client: Option<Client>,
    ) -> Option<ClientPermit> {
        if !self.uses.permits(&state.uses, client) {
            return None;
        }
        state.uses.add(client);
        Some(ClientPermit { shared: self.clone(), client })
    }

    fn try_queue(
        &self,
        state: &mut State,
        client: Option<Client>,
        yields: Option<Box<dyn Fn() -> bool + Send>>,
    ) -> Option<oneshot::Receiver<ClientPermit>> {
        let (admission, admitted) = oneshot::channel();
        let waiter = Waiter { client, yields, admission };
        if !self.queued.permits(&state.queued, client) {
            state.remove_abandoned();
            if !self.queued.permits(&state.queued, client) && !self.displaces(state, &waiter) {
                return None;
            }
        }
        state.queued.add(client);
        state.queue.push_back(waiter);
        Some(admitted)
    }

    /// Removes waiters that yield their places, the last ones first, until there is room for
    /// another waiter. Returns true if there is.
    fn displaces(&self, state: &mut State, waiter: &Waiter) -> bool {
        if waiter.yields() {
            return false;
        }
        while !self.queued.permits(&state.queued, waiter.client) {
            let is_full = state.queued.total >= self.queued.max;
            let frees = |other: &Waiter| is_full || waiter.shares_network(other);
            let displaced = state.queue.iter().rposition(|other| frees(other) && other.yields());
            let Some(place) = displaced else { return false };
            state.remove(place);
        }
        true
    }

    async fn admitted(&self, admission: oneshot::Receiver<ClientPermit>) -> Option<ClientPermit> {
        timeout(self.queue_timeout, admission).await.ok()?.ok()
    }

    /// Takes the first waiter that may use the resource now. Waiters that yield are last.
    fn take_admissible(self: &Arc<Shared>, state: &mut State) -> Option<Admission> {
        let first = self.take_admissible_if(state, |waiter| !waiter.yields());
        first.or_else(|| self.take_admissible_if(state, |_| true))
    }

    /// Takes the first waiter that may use the resource now and for which `is_candidate` returns
    /// true.
    fn take_admissible_if(
        self: &Arc<Shared>,
        state: &mut State,
        is_candidate: impl Fn(&Waiter) -> bool,
    ) -> Option<Admission> {
        let mut place = 0;
        loop {
            let waiter = state.queue.get(place)?;
            let client = waiter.client;
            if waiter.admission.is_closed() {
                // In most cases at the front, where this takes no time.
                state.remove(place);
            } else if !is_candidate(waiter) {
                place += 1;
            } else if let Some(permit) = self.try_admit(state, client) {
                return state.remove(place).map(|waiter| (waiter.admission, permit));
            } else {
                place += 1;
            }
        }
    }
}

impl State {
    /// Removes a waiter from the queue.
    fn remove(&mut self, place: usize) -> Option<Waiter> {
        let waiter = self.queue.remove(place)?;
        self.queued.remove(waiter.client);
        Some(waiter)
    }

    fn remove_abandoned(&mut self) {
        let State { queue, queued, .. } = self;
        queue.retain(|waiter| {
            let waits = !waiter.admission.is_closed();
            if !waits {
                queued.remove(waiter.client);
            }
            waits
        });
    }
}

impl ClientPermit {
    /// Runs a function in a blocking thread of the current tokio runtime. The thread holds the
    /// permit until the function returns, also if the returned handle is dropped.
    pub fn spawn_blocking<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        spawn_blocking(move || {
            let output = work();
            drop(self);
            output
        })
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.uses.remove(self.client);
        if state.queue.is_empty() {
            return;
        }
        let admissible = self.shared.take_admissible(&mut state);
        drop(state);
        if let Some((admission, permit)) = admissible {
            // If the waiter gives up now, dropping the permit admits the next one.
            drop(admission.send(permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::LocalBoxFuture;

    fn limit(max: usize, max_per_client: usize, max_queued: usize) -> ClientLimit {
        let queue_timeout = Duration::from_secs(30);
        ClientLimit::new(ClientLimitSettings {
            max_per_client,
            max_queued,
            queue_timeout,
            ..ClientLimitSettings::new(max)
        })
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    /// Returns a client: `u` is one on a Unix socket, which has no address, and those with upper
    /// case letters are in the same IPv6 /48 network.
    fn client(name: char) -> Option<Client> {
        let network = if name.is_uppercase() { 0x2001_0db8_0001_0000 } else { 0 };
        (name != 'u').then_some(Client(network | name as u64))
    }

    /// The uses of a limit by several clients.
    struct Uses {
        limit: ClientLimit,
        in_use: Vec<(char, ClientPermit)>,
        waiting: Vec<(char, LocalBoxFuture<'static, Option<ClientPermit>>)>,
        /// Clients that yield.
        has_left: Arc<Mutex<String>>,
    }

    impl Uses {
        /// Starts a use; returns what is written after the client: `?` if it waits, `!` if it is
        /// rejected.
        fn start(&mut self, name: char) -> &'static str {
            let limit = self.limit.clone();
            let has_left = self.has_left.clone();
            let yields = move || has_left.lock().unwrap().contains(name);
            let mut permit =
                async move { limit.acquire_yielding(client(name), yields).await }.boxed_local();
            match permit.as_mut().now_or_never() {
                Some(Some(permit)) => self.in_use.push((name, permit)),
                Some(None) => return "!",
                None => {
                    self.waiting.push((name, permit));
                    return "?";
                }
            }
            ""
        }

        /// Ends a use; returns the clients that are admitted from the queue.
        fn end(&mut self, name: char) -> String {
            let at = self.in_use.iter().position(|(other, _)| *other == name).expect("a use");
            drop(self.in_use.remove(at));
            let mut admitted = String::new();
            for (name, mut permit) in std::mem::take(&mut self.waiting) {
                match permit.as_mut().now_or_never() {
                    Some(Some(permit)) => {
                        admitted.push(name);
                        self.in_use.push((name, permit));
                    }
                    // It has lost its place in the queue.
                    Some(None) => {}
                    None => self.waiting.push((name, permit)),
                }
            }
            admitted
        }
    }

    /// Each row: the limits, and the uses of clients: `a` is admitted, `a?` waits, `a!` is
    /// rejected, `-a:b` is the end of a use, after which `b` is admitted, and `~a` is the time from
    /// which `a` yields.
    #[test]
    fn admits_clients_within_their_shares() {
        let runtime = runtime();
        let _time_of_the_runtime = runtime.enter();
        for (max, per_client, queued, events) in [
            (2, 2, 1, "a b a? b! -a:a -b: -a:"),
            // By default a client has half of the uses and half of the queue.
            (4, 0, 4, "a a a? a? a! b b b? -a:a -b:b"),
            (3, 0, 9, "a a a? b -a:a"),
            (1, 0, 1, "a b? -a:b"),
            // A client at its limit does not delay others, and is admitted in order of arrival.
            (4, 2, 4, "a a a? b b -b: c -a:a"),
            (4, 2, 4, "a a a? a? b b b? c? -b:b -b:c -c: -a:a -a:a"),
            (1, 1, 0, "a b! -a: b"),
            // Clients without an address have no limit of their own.
            (4, 1, 4, "u u u u a? a! u? u? -u:a -u:u -a:u"),
            // The clients of a site have half of what one of them leaves in addition to its share.
            (4, 2, 0, "A A A! B C! a -A: C B!"),
            (8, 2, 8, "A A B B C D? D? D! a a a? -A:D -a:a"),
            (0, 0, 0, "a!"),
            // Clients that have left come last, as long as any others may be admitted.
            (1, 1, 4, "a b? b? c? ~b -a:c -c:b -b:b"),
            (2, 1, 4, "a b a? b? ~b -a:a -b:b"),
            (1, 1, 4, "a b? b? c? -a:b"),
            // Their places in a full queue are free for the same client, and for all if it is full
            // in total; for clients that have left themselves they are not.
            (1, 1, 2, "a b? c? d! ~b d? -a:c -c:d -d:"),
            (1, 1, 2, "a b? c? ~b ~d d! -a:c -c:b -b:"),
            (4, 2, 4, "a a a? a? ~b a! ~a a!"),
        ] {
            let limit = limit(max, per_client, queued);
            let has_left = Arc::default();
            let mut uses = Uses { limit, in_use: Vec::new(), waiting: Vec::new(), has_left };
            for event in events.split(' ') {
                if let Some(names) = event.strip_prefix('~') {
                    uses.has_left.lock().unwrap().push_str(names);
                    continue;
                }
                let found = match event.strip_prefix('-').and_then(|rest| rest.chars().next()) {
                    Some(name) => format!("-{name}:{}", uses.end(name)),
                    None => {
                        let name = event.chars().next().expect("a client");
                        format!("{name}{}", uses.start(name))
                    }
                };
                assert_eq!(found, event, "{events}");
            }
        }
    }

    #[test]
    fn abandoned_waits_free_the_queue() {
        runtime().block_on(async {
            let limit = limit(1, 1, 1);
            let permit = limit.try_acquire(client('a')).unwrap();
            for _ in 0..3 {
                let wait = timeout(Duration::from_millis(5), limit.acquire(client('b')));
                assert!(wait.await.is_err());
                assert_eq!(limit.queued(), 0);
            }
            drop(permit);
            assert_eq!(limit.in_use(), 0);
            assert!(limit.try_acquire(client('b')).is_some());
        });
    }

    #[test]
    fn maps_addresses_to_clients() {
        for (a, b, same) in [
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ] {
            let [one, other] = [a, b].map(|address| Client::new(address.parse().unwrap()));
            assert_eq!(one == other, same, "{a} and {b}");
            let peers = [a, b].map(|address| SocketAddr::new(address.parse().unwrap(), 80));
            assert_eq!(peers.map(|peer| Client::of_peer(&peer)), [one, other], "{a} and {b}");
        }
    }
}
