//! Values and leases of a store.

use std::time::{Duration, Instant};

use weft_cluster::{
    Cluster, ClusterSecret, Expected, LeaseToken, MAX_KEY_BYTES, MAX_READ, MAX_VALUE_BYTES,
    NewValue, SharedValues, Store, StoreError, ValueVersion,
};

use crate::{Redis, run};

/// Values of a process with this secret.
fn values(redis: &Redis, letters: &[&str]) -> SharedValues {
    let lines: Vec<String> = letters.iter().map(|letter| letter.repeat(32)).collect();
    let secrets = ClusterSecret::read(lines.join("\n").as_bytes()).unwrap();
    Cluster::new(redis.settings(), "test", &secrets[0]).unwrap().values(&secrets)
}

fn new(key: &str, value: &[u8], expected: Expected) -> NewValue {
    NewValue { key: key.to_owned(), value: value.to_vec(), expected, lifetime: None }
}

#[test]
fn changes_have_conditions_and_limits() {
    let Some(redis) = Redis::start(20) else { return };
    let mut store = redis.store(1).values();
    let long_key = "k".repeat(MAX_KEY_BYTES + 1);
    run(async {
        assert_eq!(store.get("a").await, Ok(None));
        let first = store.put("a", b"1", Expected::Absent, None).await.unwrap().unwrap();
        assert_eq!(store.put("a", b"2", Expected::Absent, None).await, Ok(None));
        let other = ValueVersion([7; 16]);
        assert_eq!(store.put("a", b"2", Expected::Version(other), None).await, Ok(None));
        let second = store.put("a", b"2", Expected::Version(first), None).await.unwrap().unwrap();
        assert_ne!(first, second);
        assert_eq!(store.put("a", b"3", Expected::Version(first), None).await, Ok(None));
        assert_eq!(store.get("a").await.unwrap().unwrap().value, b"2");
        assert_eq!(store.delete("a", Expected::Version(first)).await, Ok(false));
        assert_eq!(store.delete("a", Expected::Version(second)).await, Ok(true));
        assert_eq!(store.put("a", b"3", Expected::Version(second), None).await, Ok(None));
        assert_eq!(store.delete("a", Expected::Any).await, Ok(true));
        let largest = vec![0; MAX_VALUE_BYTES];
        assert!(store.put("a", &largest, Expected::Any, None).await.unwrap().is_some());
        assert_eq!(store.get("a").await.unwrap().unwrap().value, largest);
        let too_large = vec![0; MAX_VALUE_BYTES + 29];
        for (key, value) in [("a", &too_large[..]), (&long_key, b""), ("", b"")] {
            let refused = store.put(key, value, Expected::Any, None).await;
            assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        }
    });
}

#[test]
fn lists_have_pages_and_omit_expired_values() {
    let Some(redis) = Redis::start(21) else { return };
    let mut store = redis.store(1).values();
    run(async {
        for number in 0..1_203 {
            store.put(&format!("n/{number:04}"), b"", Expected::Any, None).await.unwrap();
        }
        let lifetime = Some(Duration::from_millis(1));
        store.put("n/expired", b"", Expected::Any, lifetime).await.unwrap();
        store.put("o", b"", Expected::Any, None).await.unwrap();
        while store.get("n/expired").await.unwrap().is_some() {}
        let listed = store.list("n/").await.unwrap();
        let names: Vec<String> = (0..1_203).map(|number| format!("n/{number:04}")).collect();
        assert!(listed.iter().map(|(name, _)| name).eq(&names), "{} names", listed.len());
        assert_eq!(listed[7].1, store.get("n/0007").await.unwrap().unwrap().version);
    });
    // The values of others at the same keys.
    for name in ["values", "value:a"] {
        let _: () = redis.call(&["DEL", &redis.named(name)]);
        let _: () = redis.call(&["RPUSH", &redis.named(name), "x"]);
    }
    run(async {
        assert!(store.put("a", b"1", Expected::Absent, None).await.unwrap().is_some());
        assert_eq!(store.list("a").await.unwrap().len(), 1);
    });
    let shared = values(&redis, &["x"]);
    for number in 0..=MAX_READ {
        shared.put(new(&format!("many/{number}"), b"", Expected::Any)).unwrap();
        match shared.read_all("many/") {
            Ok(read) if number < MAX_READ => assert_eq!(read.len(), number + 1),
            result => {
                assert!(matches!(result, Err(StoreError::Invalid(_))) && number == MAX_READ);
            }
        }
    }
}

#[test]
fn leases_have_one_holder_until_they_expire() {
    let Some(redis) = Redis::start(22) else { return };
    let mut store = redis.store(1).values();
    let [one, other] = [1, 2].map(|number| LeaseToken([number; 16]));
    let (long, short) = (Duration::from_secs(60), Duration::from_millis(20));
    run(async {
        assert_eq!(store.lease("a", one, long).await, Ok(true));
        assert_eq!(store.lease("a", other, long).await, Ok(false));
        assert_eq!(store.lease("a", one, long).await, Ok(true));
        store.release("a", other).await.unwrap();
        assert_eq!(store.lease("a", other, long).await, Ok(false));
        store.release("a", one).await.unwrap();
        assert_eq!(store.lease("a", other, short).await, Ok(true));
        let deadline = Instant::now() + Duration::from_secs(30);
        while store.lease("a", one, long).await != Ok(true) {
            assert!(Instant::now() < deadline, "the lease does not expire");
        }
    });
    let [first, second] = ["x", "x"].map(|letter| values(&redis, &[letter]));
    let held = first.lease("b").unwrap();
    assert!(held.is_some());
    assert!(first.lease("b").unwrap().is_none());
    assert!(second.lease("b").unwrap().is_none());
    drop(held);
    // The release precedes the next call of the same process.
    assert!(first.lease("b").unwrap().is_some());
}

#[test]
fn values_are_encrypted_and_changes_are_found() {
    let Some(redis) = Redis::start(23) else { return };
    let (old, both, other) =
        (values(&redis, &["x"]), values(&redis, &["y", "x"]), values(&redis, &["y"]));
    old.put(new("a", b"a private key", Expected::Absent)).unwrap().unwrap();
    old.put(new("b", b"another", Expected::Absent)).unwrap().unwrap();
    let stored: Vec<u8> = redis.call(&["GET", &redis.named("value:a")]);
    assert!(!stored.windows(7).any(|part| part == b"private"));
    assert_eq!(both.get("a").unwrap().unwrap().value, b"a private key");
    let refused = other.get("a").unwrap_err().to_string();
    assert!(refused.contains("the value of a has a wrong code"), "{refused}");
    // The store exchanges two values.
    let _: () = redis.call(&["COPY", &redis.named("value:b"), &redis.named("value:a"), "REPLACE"]);
    assert!(old.get("a").unwrap_err().to_string().contains("has a wrong code"));
    assert_eq!(old.get("b").unwrap().unwrap().value, b"another");
    let read = old.read_all("").unwrap_err();
    assert!(matches!(read, StoreError::Refused(_)), "{read}");
    assert_eq!(old.read_all("b").unwrap(), [("b".to_owned(), b"another".to_vec())]);
    assert_eq!(old.read_all("a").unwrap(), []);
}

#[test]
fn calls_fail_soon_while_the_store_is_away() {
    let Some(mut redis) = Redis::start(24) else { return };
    let shared = values(&redis, &["x"]);
    shared.put(new("a", b"1", Expected::Absent)).unwrap().unwrap();
    redis.process.kill().unwrap();
    redis.process.wait().unwrap();
    let start = Instant::now();
    for _ in 0..100 {
        let failed = shared.get("a");
        assert!(matches!(failed, Err(StoreError::Away(_))), "{failed:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
}
