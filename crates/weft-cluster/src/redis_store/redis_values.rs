//! Values and leases in Valkey or Redis.

use std::time::Duration;

use redis::{Script, Value};

use super::connection::{CALL_TIMEOUT, Connection};
use super::names::Names;
use crate::sealed_store::SEAL_BYTES;
use crate::store::{
    Expected, LeaseToken, MAX_LISTED, MAX_VALUE_BYTES, Store, StoredValue, ValueVersion, check_key,
    check_value,
};
use crate::store_error::StoreError;

/// Number of names that a call returns.
const PAGE: usize = 1_000;

/// Values and leases of a cluster. A value begins with its version.
pub struct RedisValues {
    connection: Connection,
    names: Names,
    scripts: Scripts,
}

struct Scripts {
    put: Script,
    delete: Script,
    list: Script,
    lease: Script,
    release: Script,
}

impl RedisValues {
    pub(super) fn new(connection: Connection, names: Names) -> RedisValues {
        let scripts = Scripts {
            put: Script::new(concat!(include_str!("condition.lua"), include_str!("put_value.lua"))),
            delete: Script::new(concat!(
                include_str!("condition.lua"),
                include_str!("delete_value.lua")
            )),
            list: Script::new(include_str!("list_values.lua")),
            lease: Script::new(include_str!("lease.lua")),
            release: Script::new(include_str!("release.lua")),
        };
        RedisValues { connection, names, scripts }
    }

    async fn list_page(&mut self, prefix: &str, after: Option<&str>) -> Result<Page, StoreError> {
        let mut call = self.scripts.list.prepare_invoke();
        let first = after.map_or_else(|| format!("[{prefix}"), |after| format!("({after}"));
        let last = [b"(", prefix.as_bytes(), b"\xff"].concat();
        call.key(self.names.index()).arg(self.names.value("")).arg(first).arg(last).arg(PAGE);
        let call = async |redis: &mut _| call.invoke_async::<Value>(redis).await;
        let found: Vec<Vec<u8>> = self.connection.call(CALL_TIMEOUT, call).await?;
        Page::parse(found, prefix)
            .ok_or_else(|| StoreError::Invalid("a list has another form than expected".to_owned()))
    }
}

/// Names and versions of a call.
struct Page {
    is_last: bool,
    last: String,
    entries: Vec<(String, ValueVersion)>,
}

impl Page {
    fn parse(found: Vec<Vec<u8>>, prefix: &str) -> Option<Page> {
        let (head, entries) = found.split_first_chunk::<2>()?;
        let text = |bytes: &[u8]| str::from_utf8(bytes).ok().map(str::to_owned);
        let count: usize = text(&head[0])?.parse().ok()?;
        let entry = |pair: &[Vec<u8>]| {
            let name = text(&pair[0]).filter(|name| name.starts_with(prefix))?;
            Some((name, ValueVersion(pair.get(1)?.as_slice().try_into().ok()?)))
        };
        let entries = entries.chunks(2).map(entry).collect::<Option<_>>()?;
        Some(Page { is_last: count < PAGE, last: text(&head[1])?, entries })
    }
}

impl Store for RedisValues {
    async fn get(&mut self, key: &str) -> Result<Option<StoredValue>, StoreError> {
        check_key(key)?;
        let mut call = redis::cmd("GET");
        call.arg(self.names.value(key));
        let call = async |redis: &mut redis::aio::MultiplexedConnection| {
            redis.send_packed_command(&call).await?.extract_error()
        };
        let found: Option<Vec<u8>> = self.connection.call(CALL_TIMEOUT, call).await?;
        let Some(found) = found else { return Ok(None) };
        match found.split_first_chunk() {
            Some((version, value)) if value.len() <= MAX_VALUE_BYTES + SEAL_BYTES => {
                let (value, version) = (value.to_vec(), ValueVersion(*version));
                Ok(Some(StoredValue { value, version }))
            }
            _ => Err(StoreError::Invalid(format!("the value of {key} has another size"))),
        }
    }

    async fn put(
        &mut self,
        key: &str,
        value: &[u8],
        expected: Expected,
        lifetime: Option<Duration>,
    ) -> Result<Option<ValueVersion>, StoreError> {
        check_key(key)?;
        check_value(value, SEAL_BYTES)?;
        let mut version = [0; 16];
        aws_lc_rs::rand::fill(&mut version)
            .map_err(|_| StoreError::Refused("the system has no random numbers".to_owned()))?;
        let (condition, known) = condition(&expected);
        let lifetime = lifetime.map_or_else(String::new, milliseconds);
        let mut call = self.scripts.put.prepare_invoke();
        call.key(self.names.value(key)).key(self.names.index());
        call.arg(key).arg(condition).arg(known).arg([&version[..], value].concat()).arg(lifetime);
        let call = async |redis: &mut _| call.invoke_async::<Value>(redis).await;
        let is_put: i64 = self.connection.call(CALL_TIMEOUT, call).await?;
        Ok((is_put == 1).then_some(ValueVersion(version)))
    }

    async fn delete(&mut self, key: &str, expected: Expected) -> Result<bool, StoreError> {
        check_key(key)?;
        let (condition, known) = condition(&expected);
        let mut call = self.scripts.delete.prepare_invoke();
        call.key(self.names.value(key)).key(self.names.index());
        call.arg(key).arg(condition).arg(known);
        let call = async |redis: &mut _| call.invoke_async::<Value>(redis).await;
        let is_deleted: i64 = self.connection.call(CALL_TIMEOUT, call).await?;
        Ok(is_deleted == 1)
    }

    async fn list(&mut self, prefix: &str) -> Result<Vec<(String, ValueVersion)>, StoreError> {
        check_key(prefix)?;
        let mut page = self.list_page(prefix, None).await?;
        let mut listed = std::mem::take(&mut page.entries);
        // A store that repeats a page ends at the limit.
        while !page.is_last {
            if listed.len() > MAX_LISTED {
                let reason = format!("a list has more than {MAX_LISTED} names");
                return Err(StoreError::Invalid(reason));
            }
            let next = self.list_page(prefix, Some(&page.last)).await?;
            if next.last <= page.last && !next.is_last {
                return Err(StoreError::Invalid("a list has no end".to_owned()));
            }
            page = next;
            listed.append(&mut page.entries);
        }
        Ok(listed)
    }

    async fn lease(
        &mut self,
        name: &str,
        token: LeaseToken,
        lifetime: Duration,
    ) -> Result<bool, StoreError> {
        check_key(name)?;
        let mut call = self.scripts.lease.prepare_invoke();
        call.key(self.names.lease(name)).arg(&token.0[..]).arg(milliseconds(lifetime));
        let call = async |redis: &mut _| call.invoke_async::<Value>(redis).await;
        let is_held: i64 = self.connection.call(CALL_TIMEOUT, call).await?;
        Ok(is_held == 1)
    }

    async fn release(&mut self, name: &str, token: LeaseToken) -> Result<(), StoreError> {
        check_key(name)?;
        let mut call = self.scripts.release.prepare_invoke();
        call.key(self.names.lease(name)).arg(&token.0[..]);
        let call = async |redis: &mut _| call.invoke_async::<Value>(redis).await;
        self.connection.call(CALL_TIMEOUT, call).await.map(|_: i64| ())
    }
}

/// Returns the name of a condition, and the version that it expects.
fn condition(expected: &Expected) -> (&'static str, &[u8]) {
    match expected {
        Expected::Any => ("any", b""),
        Expected::Absent => ("absent", b""),
        Expected::Version(version) => ("version", &version.0),
    }
}

fn milliseconds(duration: Duration) -> String {
    duration.as_millis().max(1).to_string()
}
