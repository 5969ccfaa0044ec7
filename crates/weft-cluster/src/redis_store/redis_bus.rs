//! Messages in a stream of Valkey or Redis.

use std::time::Duration;

use redis::{Script, Value, cmd};

use super::connection::{CALL_TIMEOUT, Connection};
use super::names::Names;
use crate::bus::{Bus, BusEvent, MAX_MESSAGE_BYTES, Publisher};
use crate::store_error::StoreError;

/// Number of messages that the store keeps, about.
const MAX_STORED: u32 = 10_000;

/// Number of messages of a call. A response with them is smaller than the maximum of responses.
const MAX_RECEIVED: u32 = 16;

/// Time that the store waits for a message.
const BLOCK_TIME: Duration = Duration::from_secs(2);

/// Name of the field of a message.
const FIELD: &str = "m";

/// Reader of the messages of a cluster.
pub struct RedisBus {
    connection: Connection,
    names: Names,
    open: Script,
    position: Position,
}

/// Writer of messages of a cluster.
pub struct RedisPublisher {
    connection: Connection,
    names: Names,
}

/// The place of a reader in the stream.
enum Position {
    /// Nothing was read so far.
    Unknown,
    /// The entries behind this one follow, and the connection has not failed since.
    Behind(String),
    /// The connection has failed since this entry.
    Interrupted(String),
    /// The last entry could not be read.
    Lost,
}

/// Entries of streams, each with its ID, and with names and values of fields in turn.
type Entries = Vec<(String, Vec<(String, Vec<Vec<u8>>)>)>;

impl RedisBus {
    pub(super) fn new(connection: Connection, names: Names) -> RedisBus {
        let open = Script::new(include_str!("open_bus.lua"));
        RedisBus { connection, names, open, position: Position::Unknown }
    }

    /// Checks that messages could be read.
    pub(super) async fn check(&mut self) -> Result<(), StoreError> {
        self.find_position().await.map(drop)
    }

    /// Finds the position in the stream, and a gap before it.
    async fn find_position(&mut self) -> Result<Vec<BusEvent>, StoreError> {
        let known = match &self.position {
            Position::Behind(_) => return Ok(Vec::new()),
            Position::Interrupted(known) => known.clone(),
            Position::Unknown | Position::Lost => String::new(),
        };
        let mut call = self.open.prepare_invoke();
        call.key(self.names.bus()).arg(&known);
        let call = async |redis: &mut _| call.invoke_async::<Value>(redis).await;
        let (is_known, last): (String, String) = self.connection.call(CALL_TIMEOUT, call).await?;
        let has_read = !matches!(self.position, Position::Unknown);
        let is_known = is_known == "1";
        self.position = Position::Behind(if is_known { known } else { last });
        Ok(if has_read && !is_known { vec![BusEvent::Gap] } else { Vec::new() })
    }

    async fn read(&mut self) -> Result<Vec<BusEvent>, StoreError> {
        let found = self.find_position().await?;
        let Position::Behind(position) = &self.position else { return Ok(found) };
        if !found.is_empty() {
            return Ok(found);
        }
        let mut call = cmd("XREAD");
        call.arg("COUNT").arg(MAX_RECEIVED).arg("BLOCK").arg(BLOCK_TIME.as_millis() as u64);
        call.arg("STREAMS").arg(self.names.bus()).arg(position);
        let call = async |redis: &mut redis::aio::MultiplexedConnection| {
            redis.send_packed_command(&call).await?.extract_error()
        };
        let time = BLOCK_TIME + CALL_TIMEOUT;
        let streams: Option<Entries> = self.connection.call(time, call).await?;
        let entries = streams.into_iter().flatten().flat_map(|(_, entries)| entries);
        let mut events = Vec::new();
        for (id, fields) in entries {
            self.position = Position::Behind(id);
            match <[Vec<u8>; 2]>::try_from(fields) {
                Ok([name, message]) if name == FIELD.as_bytes() => {
                    events.push(BusEvent::Message(message));
                }
                _ => {}
            }
        }
        Ok(events)
    }
}

impl Bus for RedisBus {
    async fn receive(&mut self) -> Result<Vec<BusEvent>, StoreError> {
        let result = self.read().await;
        if let Err(error) = &result {
            let position = std::mem::replace(&mut self.position, Position::Lost);
            self.position = match (error, position) {
                (_, Position::Unknown) => Position::Unknown,
                (StoreError::Away(_), Position::Behind(id) | Position::Interrupted(id)) => {
                    Position::Interrupted(id)
                }
                _ => Position::Lost,
            };
        }
        result
    }
}

impl RedisPublisher {
    pub(super) fn new(connection: Connection, names: Names) -> RedisPublisher {
        RedisPublisher { connection, names }
    }
}

impl Publisher for RedisPublisher {
    async fn publish(&mut self, message: &[u8]) -> Result<(), StoreError> {
        if message.len() > MAX_MESSAGE_BYTES {
            let reason = format!("a message has more than {MAX_MESSAGE_BYTES} bytes");
            return Err(StoreError::Refused(reason));
        }
        let mut call = cmd("XADD");
        call.arg(self.names.bus()).arg("MAXLEN").arg("~").arg(MAX_STORED).arg("*");
        call.arg(FIELD).arg(message);
        let call = async |redis: &mut redis::aio::MultiplexedConnection| {
            redis.send_packed_command(&call).await?.extract_error()
        };
        self.connection.call(CALL_TIMEOUT, call).await.map(|_: String| ())
    }
}
