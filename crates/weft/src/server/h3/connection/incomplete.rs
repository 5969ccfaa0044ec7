//! Requests whose head was not received completely: their time and their memory.

use std::collections::VecDeque;
use std::time::Duration;

use quinn_proto::StreamId;

use crate::server::h3::connection::{Http3Connection, stream_id};
use crate::server::h3::stream::{Owner, Stream};
use weft_proto::http3::ErrorCode;

/// Streams with an incomplete head, in the order in which they were opened.
#[derive(Default)]
pub(super) struct IncompleteHeads {
    /// Identifiers, and the time of the first check in milliseconds.
    streams: VecDeque<(u64, Option<u64>)>,
}

/// Maximum size of the incomplete heads of a connection, as a multiple of the maximum size of one.
const MAX_HEADS: usize = 16;

impl Http3Connection {
    /// Records a new stream, if its head is incomplete.
    pub(super) fn record_incomplete(&mut self, id: u64) {
        if self.streams.get(&id).is_some_and(has_no_head) {
            self.incomplete.streams.push_back((id, None));
        }
    }

    /// Rejects a stream whose incomplete head exceeds the memory for all of them.
    pub(super) fn limit_incomplete(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        if !self.streams.get(&id.into()).is_some_and(has_no_head) {
            return Ok(());
        }
        let streams = self.incomplete.streams.iter();
        let heads = streams.filter_map(|(id, _)| self.streams.get(id));
        let bytes: usize = heads.map(|stream| stream.reader.buffered_bytes()).sum();
        match bytes > MAX_HEADS * self.limits.head {
            true => self.fail_stream(id, ErrorCode::EXCESSIVE_LOAD),
            false => Ok(()),
        }
    }

    /// Resets the streams whose head has been incomplete for `timeout`. Returns the time until the
    /// next one expires, if there is one. `now` is in milliseconds.
    pub(in crate::server::h3) fn expire_incomplete(
        &mut self,
        now: u64,
        timeout: Duration,
    ) -> Result<Option<Duration>, ErrorCode> {
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let newest = self.incomplete.streams.iter_mut().rev();
        newest.take_while(|(_, since)| since.is_none()).for_each(|(_, since)| *since = Some(now));
        while let Some((id, since)) = self.incomplete.streams.front() {
            let (id, due) = (*id, since.unwrap_or(now).saturating_add(timeout));
            let is_incomplete = self.streams.get(&id).is_some_and(has_no_head);
            if is_incomplete && now < due {
                return Ok(Some(Duration::from_millis(due - now)));
            }
            self.incomplete.streams.pop_front();
            if is_incomplete {
                self.abandon_head(id)?;
            }
        }
        Ok(None)
    }

    fn abandon_head(&mut self, id: u64) -> Result<(), ErrorCode> {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.owner = Owner::None;
        }
        self.fail_stream(stream_id(id), ErrorCode::REQUEST_INCOMPLETE)
    }
}

fn has_no_head(stream: &Stream) -> bool {
    stream.owner == Owner::Reader
}
