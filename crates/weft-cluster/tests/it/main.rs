//! A store in a Redis server: counters and messages, with values that others have written.

mod values;

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::Connection;
use weft_cluster::{
    Bus, BusEvent, Charge, Counters, MAX_MESSAGE_BYTES, Publisher, RedisStore, StoreError,
    StoreSettings,
};

/// A Redis server, which ends with the test.
struct Redis {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Redis {
    /// Starts a server at an address that belongs to this process and to this number. `None` if the
    /// program is missing.
    fn start(number: u8) -> Option<Redis> {
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let ip = Ipv4Addr::new(127, 1 + high % 254, low, 100 + number);
        let address = SocketAddr::from((ip, 6_379));
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--bind", &ip.to_string(), "--port", "6379", "--save", "", "--dir"]);
        let process = command.arg(folder.path()).stdout(Stdio::null()).spawn();
        let Ok(process) = process else {
            assert!(std::env::var_os("WEFT_REQUIRE_TOOLS").is_none(), "redis-server is missing");
            eprintln!("SKIPPED: redis-server is missing");
            return None;
        };
        let redis = Redis { process, address, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "Redis accepts no connections");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(redis)
    }

    fn store(&self, process: u64) -> RedisStore {
        RedisStore::new(self.settings(), "test", process)
    }

    fn settings(&self) -> StoreSettings {
        let url = format!("redis://{}", self.address).parse().unwrap();
        StoreSettings { url, user: None, password: None, tls: None }
    }

    /// Returns a name of the cluster `test`, which has at least one key.
    fn named(&self, name: &str) -> String {
        let keys: Vec<String> = self.call(&["KEYS", "weft:{*"]);
        let (prefix, _) = keys[0].split_once('}').unwrap();
        format!("{prefix}}}:{name}")
    }

    fn connection(&self) -> Connection {
        redis::Client::open(format!("redis://{}", self.address)).unwrap().get_connection().unwrap()
    }

    /// The key with this end.
    fn key(&self, end: &str) -> String {
        let keys: Vec<String> = self.call(&["KEYS", &format!("*{end}")]);
        assert_eq!(keys.len(), 1, "{keys:?}");
        keys.into_iter().next().unwrap()
    }

    fn call<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.connection()).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

/// A charge of one client, of a limit with 1 request per 1,000 s and a burst of 100.
fn charge(counter: u32, acknowledged: u64, total: u64) -> Charge {
    Charge {
        key: 5,
        counter: (1, counter),
        acknowledged,
        total,
        interval: Duration::from_secs(1_000),
        capacity: Duration::from_secs(100_000),
    }
}

/// Returns the missing requests of the bucket after a charge.
async fn missing(counters: &mut impl Counters, charge: Charge) -> u64 {
    let debts = counters.charge(&[charge]).await.unwrap();
    // A part of the bucket is refilled in between.
    (debts[0].as_secs() + 500) / 1_000
}

#[test]
fn each_request_is_charged_once() {
    let Some(redis) = Redis::start(1) else { return };
    run(async {
        let (mut a, mut b) = (redis.store(1).counters(), redis.store(2).counters());
        for (case, is_a, report, expected) in [
            ("first", true, charge(1, 0, 3), 3),
            ("repeated", true, charge(1, 0, 3), 3),
            ("repeated with more", true, charge(1, 0, 5), 5),
            ("acknowledged", true, charge(1, 5, 6), 6),
            ("another process", false, charge(1, 0, 4), 10),
            ("another bucket", true, charge(2, 0, 1), 11),
            ("an older total", true, charge(1, 0, 2), 11),
            ("recorded without a charge", true, charge(1, 50, 50), 11),
            ("and charged from there on", true, charge(1, 6, 51), 12),
            ("at most 16 times the burst", false, charge(1, 4, u64::MAX >> 12), 1_600),
        ] {
            let counters = if is_a { &mut a } else { &mut b };
            assert_eq!(missing(counters, report).await, expected, "{case}");
        }
        // The totals outlive the time at which the bucket is full.
        let mut quick = Charge { interval: Duration::from_micros(1), ..charge(9, 0, 3) };
        (quick.key, quick.capacity) = (6, Duration::from_micros(100));
        a.charge(&[quick.clone()]).await.unwrap();
        let time: i64 = redis.call(&["PTTL", &redis.key("06")]);
        assert!((5_000..=10_001).contains(&time), "{time}");
    });
}

#[test]
fn foreign_values_in_the_store_do_no_harm() {
    let Some(redis) = Redis::start(2) else { return };
    run(async {
        let mut counters = redis.store(1).counters();
        assert_eq!(missing(&mut counters, charge(1, 0, 3)).await, 3);
        let key = redis.key("05");
        for value in ["inf", "-inf", "nan", "x", "1e300", "-5", ""] {
            let _: i64 = redis.call(&["HSET", &key, "f", value]);
            let found = missing(&mut counters, charge(1, 3, 4)).await;
            assert!([0, 1, 1_600].contains(&found), "{value}: {found}");
            let _: i64 = redis.call(&["DEL", &key]);
            let _: i64 = redis.call(&["HSET", &key, "0000000000000001:1:1", value]);
            let found = missing(&mut counters, charge(1, 3, 4)).await;
            assert!([0, 1].contains(&found), "{value}: {found}");
        }
        let _: String = redis.call(&["SET", &key, "a text"]);
        assert_eq!(missing(&mut counters, charge(1, 4, 6)).await, 2);
        // A bucket with counters of processes that have ended.
        for process in 0..200 {
            let mut counters = redis.store(process).counters();
            counters.charge(&[charge(1, 0, 1)]).await.unwrap();
        }
        let fields: usize = redis.call(&["HLEN", &key]);
        assert_eq!(fields, 65);
        // The counters of the last processes are kept.
        let mut last = redis.store(199).counters();
        let before = missing(&mut last, charge(1, 1, 1)).await;
        assert_eq!(missing(&mut last, charge(1, 0, 1)).await, before);
    });
}

#[test]
fn a_store_without_room_refuses_charges() {
    let Some(redis) = Redis::start(6) else { return };
    run(async {
        let mut counters = redis.store(1).counters();
        counters.charge(&[charge(1, 0, 1)]).await.unwrap();
        let _: String = redis.call(&["CONFIG", "SET", "maxmemory", "1"]);
        let refused = counters.charge(&[charge(1, 0, 2)]).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        // With the recommended policy, clients give way.
        let _: String = redis.call(&["CONFIG", "SET", "maxmemory", "4mb"]);
        let _: String = redis.call(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
        let before: usize = redis.call(&["DBSIZE"]);
        assert_eq!(before, 1);
        for part in 0..60 {
            let client = |client: u128| Charge { key: part * 500 + client, ..charge(1, 0, 1) };
            let charges: Vec<_> = (0..500).map(client).collect();
            counters.charge(&charges).await.unwrap();
        }
        let clients: usize = redis.call(&["DBSIZE"]);
        assert!((1_000..20_000).contains(&clients), "{clients}");
    });
}

#[test]
fn counts_processes() {
    let Some(redis) = Redis::start(3) else { return };
    run(async {
        assert_eq!(redis.store(1).check().await.unwrap(), 1, "without itself, at least one");
        for process in 1..=3 {
            let mut counters = redis.store(process).counters();
            assert_eq!(u64::from(counters.heartbeat().await.unwrap()), process);
            assert_eq!(u64::from(counters.heartbeat().await.unwrap()), process, "again");
        }
        assert_eq!(redis.store(4).check().await.unwrap(), 3);
        let key = redis.key("processes");
        let _: i64 = redis.call(&["ZADD", &key, "1", "one that has ended"]);
        let many: Vec<String> = (0..2_000).map(|number| format!("x{number}")).collect();
        let mut call = redis::cmd("ZADD");
        call.arg(&key);
        many.iter().for_each(|name| {
            call.arg("inf").arg(name);
        });
        let _: i64 = call.query(&mut redis.connection()).unwrap();
        assert_eq!(redis.store(4).check().await.unwrap(), 1_000);
        let _: String = redis.call(&["SET", &key, "a text"]);
        assert_eq!(redis.store(1).counters().heartbeat().await.unwrap(), 1);
    });
}

/// Receives until there are so many events.
async fn receive(bus: &mut impl Bus, count: usize) -> Vec<BusEvent> {
    let mut events = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    while events.len() < count && Instant::now() < deadline {
        events.extend(bus.receive().await.unwrap_or_default());
    }
    events
}

/// Publishes over a connection that may have been interrupted.
async fn publish_again(publisher: &mut impl Publisher, message: &[u8]) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = publisher.publish(message).await {
        assert!(Instant::now() < deadline, "{error}");
    }
}

fn message(text: impl ToString) -> BusEvent {
    BusEvent::Message(text.to_string().into_bytes())
}

#[test]
fn messages_arrive_in_order_and_gaps_are_noticed() {
    let Some(redis) = Redis::start(4) else { return };
    run(async {
        let (mut bus, mut publisher) = (redis.store(1).bus(), redis.store(2).publisher());
        publisher.publish(b"before").await.unwrap();
        // The first call waits for messages from now on.
        assert_eq!(bus.receive().await.unwrap(), []);
        for number in 0..40 {
            publisher.publish(number.to_string().as_bytes()).await.unwrap();
        }
        assert_eq!(receive(&mut bus, 40).await, (0..40).map(message).collect::<Vec<_>>());
        let large = "x".repeat(MAX_MESSAGE_BYTES);
        for _ in 0..20 {
            publisher.publish(large.as_bytes()).await.unwrap();
        }
        assert_eq!(receive(&mut bus, 20).await, vec![message(&large); 20]);
        let too_large = publisher.publish(format!("{large}x").as_bytes()).await;
        assert!(matches!(too_large, Err(StoreError::Refused(_))), "{too_large:?}");

        // An interruption without a loss.
        let interrupt = || {
            let _: i64 = redis.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        };
        interrupt();
        assert!(matches!(bus.receive().await, Err(StoreError::Away(_))));
        publish_again(&mut publisher, b"meanwhile").await;
        assert_eq!(receive(&mut bus, 1).await, [message("meanwhile")]);

        // The last entry is gone, so that others may be, too.
        interrupt();
        assert!(bus.receive().await.is_err());
        let stream = redis.key("bus");
        let _: i64 = redis.call(&["XTRIM", &stream, "MAXLEN", "0"]);
        assert_eq!(receive(&mut bus, 1).await, [BusEvent::Gap]);
        assert_eq!(bus.receive().await.unwrap(), []);
        publish_again(&mut publisher, b"after").await;
        assert_eq!(receive(&mut bus, 1).await, [message("after")]);
        let _: i64 = redis.call(&["DEL", &stream]);
        let _: String = redis.call(&["SET", &stream, "a text"]);
        assert!(matches!(bus.receive().await, Err(StoreError::Refused(_))));
        assert_eq!(receive(&mut bus, 1).await, [BusEvent::Gap]);
    });
}

#[test]
fn entries_of_others_are_skipped() {
    let Some(redis) = Redis::start(5) else { return };
    run(async {
        let (mut bus, mut publisher) = (redis.store(1).bus(), redis.store(2).publisher());
        assert_eq!(bus.receive().await.unwrap(), []);
        let stream = redis.key("bus");
        let _: String = redis.call(&["XADD", &stream, "*", "a", "1", "b", "2"]);
        let _: String = redis.call(&["XADD", &stream, "*", "n", "1"]);
        publisher.publish(b"own").await.unwrap();
        assert_eq!(receive(&mut bus, 1).await, [message("own")]);
        // One that is too large ends the connection, and is not read again.
        let _: String = redis.call(&["XADD", &stream, "*", "m", &"x".repeat(2 << 20)]);
        let result = bus.receive().await;
        assert!(matches!(result, Err(StoreError::Invalid(_))), "{result:?}");
        assert_eq!(receive(&mut bus, 1).await, [BusEvent::Gap]);
        publisher.publish(b"next").await.unwrap();
        assert_eq!(receive(&mut bus, 1).await, [message("next")]);
    });
}
