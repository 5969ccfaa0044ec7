//! A limit on the connections of an upstream or on the processes of a route, of which one client
//! can use a part only.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::base::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits the number of concurrent uses of a resource, in total and per client. Further uses wait
/// in a queue. A client that has reached its limit does not delay the clients behind it.
#[derive(Clone)]
pub struct ClientLimit(Arc<Shared>);

struct Shared {
    settings: ClientLimitSettings,
    state: Mutex<State>,
}

/// Limits of a [`ClientLimit`].
#[derive(Clone, Copy)]
pub struct ClientLimitSettings {
    /// Maximum number of uses.
    pub max: usize,
    /// Maximum number of uses of one client. 0: half of `max`, rounded up, so that it takes two
    /// clients to exclude all others.
    pub max_per_client: usize,
    /// Maximum number of queued uses. A client may have the same share of them as of the uses.
    pub max_queued: usize,
    /// Maximum time in the queue.
    pub queue_timeout: Duration,
}

#[derive(Default)]
struct State {
    /// The client of each use, in no order. They are counted only if there are many: that is
    /// cheaper than a table.
    in_use: Vec<Option<Client>>,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    client: Option<Client>,
    /// Closed once the waiter has given up.
    admission: oneshot::Sender<ClientPermit>,
}

/// The right to use the resource; ends on drop.
pub struct ClientPermit {
    shared: Arc<Shared>,
    client: Option<Client>,
}

/// A client: an IPv4 address or an IPv6 /64 network, because a client with one address of such a
/// network usually has all 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(u64);

impl Client {
    /// Returns the client at an address.
    pub fn new(address: IpAddr) -> Client {
        match address {
            IpAddr::V4(four) => Client::ipv4(four),
            IpAddr::V6(six) => Client::ipv6(six),
        }
    }

    /// Returns the client at the other end of a connection. Converting its address to an `IpAddr` would
    /// take 50 instructions.
    pub fn of_peer(address: &SocketAddr) -> Client {
        match address {
            SocketAddr::V4(four) => Client::ipv4(*four.ip()),
            SocketAddr::V6(six) => Client::ipv6(*six.ip()),
        }
    }

    /// Uses ::/32, which IPv6 does not assign to clients.
    fn ipv4(address: Ipv4Addr) -> Client {
        Client(address.to_bits().into())
    }

    fn ipv6(address: Ipv6Addr) -> Client {
        let network = Client((address.to_bits() >> 64) as u64);
        address.to_ipv4_mapped().map_or(network, Client::ipv4)
    }
}

impl ClientLimit {
    /// Creates a limit of which nothing is in use.
    pub fn new(mut settings: ClientLimitSettings) -> ClientLimit {
        if settings.max_per_client == 0 {
            settings.max_per_client = settings.max.div_ceil(2);
        }
        ClientLimit(Arc::new(Shared { settings, state: Mutex::default() }))
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
            self.0.try_queue(&mut state, client)?
        };
        timeout(self.0.settings.queue_timeout, admission).await.ok()?.ok()
    }

    /// Returns the number of permits in use.
    pub fn in_use(&self) -> usize {
        self.0.state().in_use.len()
    }

    /// Returns the number of queued uses.
    pub fn queued(&self) -> usize {
        let state = self.0.state();
        state.queue.iter().filter(|waiter| !waiter.admission.is_closed()).count()
    }

    /// Returns the number of uses, with those that are queued and maybe abandoned, in constant time.
    pub fn load(&self) -> usize {
        let state = self.0.state();
        state.in_use.len() + state.queue.len()
    }

    /// Returns true if all permits are in use.
    pub fn is_full(&self) -> bool {
        self.in_use() >= self.0.settings.max
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
        let ClientLimitSettings { max, max_per_client, .. } = self.settings;
        let in_use = state.in_use.len();
        let may_use = || client.is_none() || count(&state.in_use, client) < max_per_client;
        if in_use >= max || in_use >= max_per_client && !may_use() {
            return None;
        }
        state.in_use.push(client);
        Some(ClientPermit { shared: self.clone(), client })
    }

    fn try_queue(
        &self,
        state: &mut State,
        client: Option<Client>,
    ) -> Option<oneshot::Receiver<ClientPermit>> {
        let ClientLimitSettings { max, max_per_client, max_queued, .. } = self.settings;
        let share = (max_queued * max_per_client).div_ceil(max.max(1));
        // A long queue is searched only if its client may have used up its share.
        let has_place = |queue: &VecDeque<Waiter>| {
            let own = || queue.iter().filter(|waiter| waiter.client == client).count();
            queue.len() < max_queued && (client.is_none() || queue.len() < share || own() < share)
        };
        if !has_place(&state.queue) {
            state.queue.retain(|waiter| !waiter.admission.is_closed());
            if !has_place(&state.queue) {
                return None;
            }
        }
        let (admission, admitted) = oneshot::channel();
        state.queue.push_back(Waiter { client, admission });
        Some(admitted)
    }

    /// Takes the first waiter that may use the resource now.
    fn take_admissible(
        self: &Arc<Shared>,
        state: &mut State,
    ) -> Option<(oneshot::Sender<ClientPermit>, ClientPermit)> {
        let mut place = 0;
        loop {
            let waiter = state.queue.get(place)?;
            let client = waiter.client;
            if waiter.admission.is_closed() {
                // In most cases at the front, where this takes no time.
                state.queue.remove(place);
            } else if let Some(permit) = self.try_admit(state, client) {
                return state.queue.remove(place).map(|waiter| (waiter.admission, permit));
            } else {
                place += 1;
            }
        }
    }
}

fn count(clients: &[Option<Client>], client: Option<Client>) -> usize {
    clients.iter().filter(|other| **other == client).count()
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(place) = state.in_use.iter().position(|client| *client == self.client) {
            state.in_use.swap_remove(place);
        }
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
        ClientLimit::new(ClientLimitSettings { max, max_per_client, max_queued, queue_timeout })
    }

    /// Returns a client; `u` is one on a Unix socket, which has no address.
    fn client(name: char) -> Option<Client> {
        (name != 'u').then_some(Client(name as u64))
    }

    /// The uses of a limit by several clients.
    struct Uses {
        limit: ClientLimit,
        in_use: Vec<(char, ClientPermit)>,
        waiting: Vec<(char, LocalBoxFuture<'static, Option<ClientPermit>>)>,
    }

    impl Uses {
        /// Starts a use; returns what is written after the client: `?` if it waits, `!` if it is
        /// rejected.
        fn start(&mut self, name: char) -> &'static str {
            let limit = self.limit.clone();
            let mut permit = async move { limit.acquire(client(name)).await }.boxed_local();
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
                    Some(permit) => {
                        admitted.push(name);
                        self.in_use.push((name, permit.expect("a permit")));
                    }
                    None => self.waiting.push((name, permit)),
                }
            }
            admitted
        }
    }

    /// Each row: the limits, and the uses of clients: `a` is admitted, `a?` waits, `a!` is rejected,
    /// and `-a:b` is the end of a use, after which `b` is admitted.
    #[tokio::test]
    async fn admits_clients_within_their_shares() {
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
            (0, 0, 0, "a!"),
        ] {
            let limit = limit(max, per_client, queued);
            let mut uses = Uses { limit, in_use: Vec::new(), waiting: Vec::new() };
            for event in events.split(' ') {
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

    #[tokio::test]
    async fn abandoned_waits_free_the_queue() {
        let limit = limit(1, 1, 1);
        let permit = limit.try_acquire(client('a')).unwrap();
        for _ in 0..3 {
            assert!(timeout(Duration::from_millis(5), limit.acquire(client('b'))).await.is_err());
            assert_eq!(limit.queued(), 0);
        }
        drop(permit);
        assert_eq!(limit.in_use(), 0);
        assert!(limit.try_acquire(client('b')).is_some());
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
