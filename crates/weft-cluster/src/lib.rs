//! Rate limits and messages that several processes of a server share by a store.
//!
//! A [`Cluster`] is one of the processes. Each request is decided in its process alone and never
//! waits for the store; a thread exchanges running totals and messages in the background.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use weft::middleware::RateLimit;
//! use weft_cluster::{Cluster, ClusterEvent, ClusterSecret, StoreSettings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = StoreSettings {
//!     url: "redis://10.0.0.5:6379".parse()?,
//!     user: None,
//!     password: None,
//!     tls: None,
//! };
//! let secrets = ClusterSecret::read(&std::fs::read("cluster.secret")?)?;
//! let cluster = Cluster::new(store, "shop", &secrets[0])?;
//! let limit = cluster.share(RateLimit::new(100, Duration::from_secs(1)), "api 100/s");
//! cluster.start(Arc::new(|event: ClusterEvent| println!("{event:?}")))?;
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```
//!
//! [`Counters`], [`Bus`], [`Publisher`] and [`Store`] are the traits of a store. [`RedisStore`] has
//! them for Valkey and Redis. [`SharedValues`] are encrypted values of a [`Store`], such as
//! certificates.

mod bus;
mod cluster;
mod cluster_status;
mod counters;
mod message_exchange;
mod message_frame;
mod rate_exchange;
mod redis_store;
mod sealed_store;
mod secret;
mod shared_values;
mod store;
mod store_error;

pub use bus::{Bus, BusEvent, MAX_MESSAGE_BYTES, Publisher};
pub use cluster::{Cluster, Published};
pub use cluster_status::ClusterStatus;
pub use counters::{Charge, Counters};
pub use message_exchange::{ClusterEvent, EventHandler};
pub use redis_store::{
    RedisBus, RedisCounters, RedisPublisher, RedisStore, RedisValues, StoreSettings, StoreUrl,
};
pub use sealed_store::SealedStore;
pub use secret::ClusterSecret;
pub use shared_values::{Announcement, HeldLease, MAX_READ, NewValue, SharedValues};
pub use store::{
    Expected, LeaseToken, MAX_KEY_BYTES, MAX_LISTED, MAX_VALUE_BYTES, Store, StoredValue,
    ValueVersion,
};
pub use store_error::StoreError;
