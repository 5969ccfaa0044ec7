//! A store in Valkey or Redis.

mod bounded_stream; // a connection whose peer can send a bounded number of bytes
mod connection; // a connection that is opened when a call needs it
mod names; // names of keys
mod redis_bus; // messages
mod redis_counters; // rate limits
mod redis_values; // values and leases
mod settings; // address and credentials

use std::sync::Arc;

use self::connection::Connection;
use self::names::Names;
pub use self::redis_bus::{RedisBus, RedisPublisher};
pub use self::redis_counters::RedisCounters;
pub use self::redis_values::RedisValues;
pub use self::settings::{StoreSettings, StoreUrl};
use crate::counters::Counters;
use crate::store::Store;
use crate::store_error::StoreError;

/// A Valkey or Redis server, and the names of a cluster in it. Version 5 or later, because of its
/// streams.
#[derive(Clone)]
pub struct RedisStore {
    settings: Arc<StoreSettings>,
    names: Names,
}

impl RedisStore {
    /// Creates the client of a store. `cluster` is the name of the cluster, and `process` the
    /// number of this process, which no other process has. Nothing is connected yet.
    pub fn new(settings: StoreSettings, cluster: &str, process: u64) -> RedisStore {
        RedisStore { settings: Arc::new(settings), names: Names::new(cluster, process) }
    }

    /// Returns the counters of rate limits, with a connection of their own.
    pub fn counters(&self) -> RedisCounters {
        RedisCounters::new(self.connection(), self.names.clone())
    }

    /// Returns a reader of messages, with a connection of its own.
    pub fn bus(&self) -> RedisBus {
        RedisBus::new(self.connection(), self.names.clone())
    }

    /// Returns a writer of messages, with a connection of its own.
    pub fn publisher(&self) -> RedisPublisher {
        RedisPublisher::new(self.connection(), self.names.clone())
    }

    /// Returns the values and leases, with a connection of their own. They are not encrypted; see
    /// [`SealedStore`](crate::SealedStore).
    pub fn values(&self) -> RedisValues {
        RedisValues::new(self.connection(), self.names.clone())
    }

    /// Checks that the store can be used, and returns the number of processes of the cluster. The
    /// calling process is not counted.
    ///
    /// # Errors
    /// If the store is away, or refuses a call.
    pub async fn check(&self) -> Result<u32, StoreError> {
        let mut counters = self.counters();
        counters.charge(&[]).await?;
        self.bus().check().await?;
        self.values().list("certificates/").await?;
        counters.count_processes("").await
    }

    fn connection(&self) -> Connection {
        Connection::new(self.settings.clone())
    }
}
