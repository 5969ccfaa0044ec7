//! Counters in hashes of Valkey or Redis.

use std::time::Duration;

use redis::{Script, Value};

use super::connection::{CALL_TIMEOUT, Connection};
use super::names::Names;
use crate::counters::{Charge, Counters};
use crate::store_error::StoreError;

/// Time after which a process that reports nothing no longer counts, in seconds.
const PROCESS_LIFE: u32 = 5;

/// Maximum number of processes of a cluster. A store that reports more does not make the parts of
/// the limits smaller.
const MAX_PROCESSES: i64 = 1_000;

/// Counters of a cluster.
pub struct RedisCounters {
    connection: Connection,
    names: Names,
    charge: Script,
    heartbeat: Script,
}

impl RedisCounters {
    pub(super) fn new(connection: Connection, names: Names) -> RedisCounters {
        let charge = Script::new(include_str!("charge.lua"));
        let heartbeat = Script::new(include_str!("heartbeat.lua"));
        RedisCounters { connection, names, charge, heartbeat }
    }

    /// Returns the number of processes, and reports this one if `process` is its name.
    pub(super) async fn count_processes(&mut self, process: &str) -> Result<u32, StoreError> {
        let mut call = self.heartbeat.prepare_invoke();
        call.key(self.names.processes()).arg(process).arg(PROCESS_LIFE);
        let call = async |redis: &mut _| call.invoke_async::<Value>(redis).await;
        let count: i64 = self.connection.call(CALL_TIMEOUT, call).await?;
        Ok(count.clamp(1, MAX_PROCESSES) as u32)
    }
}

impl Counters for RedisCounters {
    async fn charge(&mut self, charges: &[Charge]) -> Result<Vec<Duration>, StoreError> {
        let mut call = self.charge.prepare_invoke();
        call.arg(&self.names.process);
        for Charge { key, counter, acknowledged, total, interval, capacity } in charges {
            call.key(self.names.bucket(*key))
                .arg(format!("{:x}:{:x}", counter.0, counter.1))
                .arg(acknowledged)
                .arg(total)
                .arg(format!("{:.3}", microseconds(*interval)))
                .arg(format!("{:.0}", microseconds(*capacity)));
        }
        let call = async |redis: &mut _| call.invoke_async::<Value>(redis).await;
        let debts: Vec<i64> = self.connection.call(CALL_TIMEOUT, call).await?;
        if debts.len() != charges.len() {
            let reason = format!("{} results for {} reports", debts.len(), charges.len());
            return Err(StoreError::Invalid(reason));
        }
        Ok(debts.into_iter().map(|debt| Duration::from_micros(debt.max(0) as u64)).collect())
    }

    async fn heartbeat(&mut self) -> Result<u32, StoreError> {
        let process = self.names.process.clone();
        self.count_processes(&process).await
    }
}

fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
