//! The memory and the disk space for buffered bodies, and the shares that clients have of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::body_kind::BodyKind;
use super::unread_bytes::UnreadBytes;
use super::writers::Writers;
use crate::base::throttled_warning::ThrottledWarning;
use weft::client_limit::Client;

/// Maximum number of bodies of one client that are written to their files at the same time. It
/// bounds the memory of a client beyond its share, 17 KiB for each, and the threads that it
/// occupies. Two: one is written while the next is read.
const MAX_WRITES_PER_CLIENT: usize = 2;

/// Maximum number of bodies of all clients that are written, or wait for a thread that writes, at
/// the same time: 4 MiB beyond the limit.
const MAX_WRITES: usize = 256;

/// Number of bytes of responses that may be written for each byte that a client reads from a file.
/// A response that is larger than the limit on unread bytes is received after the client has read a
/// small part of it.
const WRITTEN_PER_READ: u64 = 8;

/// The space for the buffered bodies of the process.
pub struct BufferSpace {
    memory: Budget,
    disk: Budget,
    max_memory_per_client: AtomicU64,
    max_unread_per_client: AtomicU64,
    /// Bytes of requests that ended before their bodies were read.
    unread_requests: UnreadBytes,
    /// Bytes of responses that were written, minus [`WRITTEN_PER_READ`] for each byte that was
    /// read.
    unread_responses: UnreadBytes,
    /// The clients with buffered bodies.
    clients: Mutex<HashMap<Client, Weak<ClientShare>>>,
    writes: Semaphore,
    pub(crate) writers: Arc<Writers>,
    /// Number of bodies that get no memory.
    starved_bodies: AtomicUsize,
    pub(crate) warning: ThrottledWarning,
}

/// Limits of a [`BufferSpace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSpaceLimits {
    /// Maximum memory of all bodies, in bytes. Default 64 MiB.
    pub memory_bytes: u64,
    /// Maximum memory of the bodies of one client, in bytes. Default 256 KiB.
    pub memory_bytes_per_client: u64,
    /// Maximum size of all temporary files. The files of one client may have half of it. Bytes of
    /// requests that were left unread a short time ago count as well. Default 4 GiB.
    pub disk_bytes: u64,
    /// Maximum number of bytes of responses that are written for a client that does not read them.
    /// Default 32 MiB.
    pub unread_bytes_per_client: u64,
}

impl Default for BufferSpaceLimits {
    fn default() -> BufferSpaceLimits {
        BufferSpaceLimits {
            // The shares of 256 clients.
            memory_bytes: 64 << 20,
            // 16 bodies of the size that a route keeps in memory by default.
            memory_bytes_per_client: 256 << 10,
            // Four bodies of the largest size that is permitted by default.
            disk_bytes: 4 << 30,
            // Enough for a page with its images and for most downloads.
            unread_bytes_per_client: 32 << 20,
        }
    }
}

impl BufferSpace {
    /// Changes the limits. Bodies that are buffered already keep their space.
    pub fn set_limits(&self, limits: BufferSpaceLimits) {
        self.memory.max.store(limits.memory_bytes, Relaxed);
        self.max_memory_per_client.store(limits.memory_bytes_per_client, Relaxed);
        self.disk.max.store(limits.disk_bytes, Relaxed);
        self.max_unread_per_client.store(limits.unread_bytes_per_client, Relaxed);
    }

    /// Returns true if there is a body that gets no memory. Others should begin with small reads,
    /// then.
    pub(crate) fn is_short(&self) -> bool {
        self.starved_bodies.load(Relaxed) > 0
    }

    /// Returns the share of a client. `None` is a proxy that forwards requests of many clients:
    /// only the limits of the process apply to it.
    pub(crate) fn share(self: &Arc<BufferSpace>, client: Option<Client>) -> Arc<ClientShare> {
        let Some(client) = client else { return ClientShare::new(self, None) };
        let mut clients = self.clients();
        if let Some(share) = clients.get(&client).and_then(Weak::upgrade) {
            return share;
        }
        let share = ClientShare::new(self, Some(client));
        clients.insert(client, Arc::downgrade(&share));
        share
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Client, Weak<ClientShare>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for BufferSpace {
    fn default() -> BufferSpace {
        let limits = BufferSpaceLimits::default();
        BufferSpace {
            memory: Budget::new(limits.memory_bytes),
            disk: Budget::new(limits.disk_bytes),
            max_memory_per_client: AtomicU64::new(limits.memory_bytes_per_client),
            max_unread_per_client: AtomicU64::new(limits.unread_bytes_per_client),
            unread_requests: UnreadBytes::default(),
            unread_responses: UnreadBytes::default(),
            clients: Mutex::default(),
            writes: Semaphore::new(MAX_WRITES),
            writers: Arc::default(),
            starved_bodies: AtomicUsize::new(0),
            warning: ThrottledWarning::default(),
        }
    }
}

/// The part of a [`BufferSpace`] that the bodies of one client use.
pub(crate) struct ClientShare {
    pub(crate) space: Arc<BufferSpace>,
    client: Option<Client>,
    memory: Used,
    disk: Used,
    writes: Semaphore,
}

/// The right to write a part of a body to its file; ends on drop.
pub(crate) struct WritePermit<'a> {
    _of_client: SemaphorePermit<'a>,
    _of_process: SemaphorePermit<'a>,
}

impl ClientShare {
    fn new(space: &Arc<BufferSpace>, client: Option<Client>) -> Arc<ClientShare> {
        Arc::new(ClientShare {
            space: space.clone(),
            client,
            memory: Used::default(),
            disk: Used::default(),
            writes: Semaphore::new(MAX_WRITES_PER_CLIENT),
        })
    }

    /// Reserves up to `wanted` bytes of memory, or none if there are fewer than `min`.
    fn reserve_memory(&self, wanted: u64, min: u64) -> u64 {
        let max = match self.client {
            Some(_) => self.space.max_memory_per_client.load(Relaxed),
            None => u64::MAX,
        };
        let own = self.memory.reserve(wanted, min, max);
        let granted = self.space.memory.reserve(own, min);
        self.memory.release(own - granted);
        granted
    }

    /// Reserves bytes of the disk, if there are as many, to write `written` bytes.
    pub(crate) fn reserve_disk(&self, bytes: u64, written: u64, kind: BodyKind) -> bool {
        if self.disk.reserve(bytes, bytes, self.available_disk_bytes()) < bytes {
            return false;
        }
        if self.space.disk.reserve(bytes, bytes) < bytes {
            self.disk.release(bytes);
            return false;
        }
        let is_permitted = self.permit_unread(written, kind);
        if !is_permitted {
            self.release_disk(bytes);
        }
        is_permitted
    }

    /// Returns true if the reservation seems to be possible.
    pub(crate) fn may_reserve_disk(&self, bytes: u64, written: u64, kind: BodyKind) -> bool {
        let is_unread_permitted = || match (self.client, kind) {
            (Some(client), BodyKind::Response) => {
                let max = self.max_unread_bytes();
                self.space.unread_responses.of(client, max, Instant::now()) + written <= max
            }
            _ => true,
        };
        self.disk.has_room(bytes, self.available_disk_bytes())
            && self.space.disk.used.has_room(bytes, self.space.disk.max.load(Relaxed))
            && is_unread_permitted()
    }

    pub(crate) fn release_disk(&self, bytes: u64) {
        self.disk.release(bytes);
        self.space.disk.used.release(bytes);
    }

    /// Adds bytes that are written for a client; returns false if there are too many unread ones.
    fn permit_unread(&self, bytes: u64, kind: BodyKind) -> bool {
        match (self.client, kind) {
            (Some(client), BodyKind::Response) => {
                let max = self.max_unread_bytes();
                self.space.unread_responses.try_add(client, bytes, max, Instant::now())
            }
            _ => true,
        }
    }

    /// Records bytes that were read from a file and taken by the client.
    pub(crate) fn record_read(&self, bytes: u64, kind: BodyKind) {
        if let (Some(client), BodyKind::Response, 1..) = (self.client, kind, bytes) {
            let (max, permitted) = (self.max_unread_bytes(), bytes * WRITTEN_PER_READ);
            self.space.unread_responses.remove(client, permitted, max, Instant::now());
        }
    }

    /// Records bytes that are not read any more. Bytes of responses are recorded already.
    pub(crate) fn record_unread(&self, bytes: u64, kind: BodyKind) {
        if let (Some(client), BodyKind::Request, 1..) = (self.client, kind, bytes) {
            self.space.unread_requests.add(client, bytes, self.max_disk_bytes(), Instant::now());
        }
    }

    fn available_disk_bytes(&self) -> u64 {
        let Some(client) = self.client else { return u64::MAX };
        let max = self.max_disk_bytes();
        max.saturating_sub(self.space.unread_requests.of(client, max, Instant::now()))
    }

    fn max_unread_bytes(&self) -> u64 {
        self.space.max_unread_per_client.load(Relaxed).min(self.max_disk_bytes())
    }

    /// Returns the disk space of a client.
    fn max_disk_bytes(&self) -> u64 {
        self.space.disk.max.load(Relaxed) / 2
    }

    /// Waits until a part of a body may be written to its file. The wait is as long as the writes
    /// of other bodies.
    pub(crate) async fn permit_write(&self) -> Option<WritePermit<'_>> {
        let of_client = self.writes.acquire().await.ok()?;
        let of_process = self.space.writes.acquire().await.ok()?;
        Some(WritePermit { _of_client: of_client, _of_process: of_process })
    }
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        let Some(client) = self.client else { return };
        let mut clients = self.space.clients();
        // A new share of the same client may have taken the place.
        if clients.get(&client).is_some_and(|share| share.strong_count() == 0) {
            clients.remove(&client);
        }
    }
}

/// The memory that one body occupies. It is released on drop.
pub(crate) struct Memory {
    share: Arc<ClientShare>,
    bytes: usize,
    /// The last read had no memory.
    is_short: bool,
    /// The last reservation for a read has failed.
    is_starved: bool,
}

impl Memory {
    pub(crate) fn new(share: Arc<ClientShare>) -> Memory {
        Memory { share, bytes: 0, is_short: false, is_starved: false }
    }

    pub(crate) fn share(&self) -> &Arc<ClientShare> {
        &self.share
    }

    /// Reserves up to `wanted` further bytes, or none if there are fewer than `min`.
    pub(crate) fn grow(&mut self, wanted: usize, min: usize) -> usize {
        let granted = self.share.reserve_memory(wanted as u64, min as u64) as usize;
        self.bytes += granted;
        granted
    }

    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Records if the body was read without memory.
    pub(crate) fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    /// Records if the next read of the body gets no memory.
    pub(crate) fn set_starved(&mut self, is_starved: bool) {
        let starved_bodies = &self.share.space.starved_bodies;
        match (self.is_starved, is_starved) {
            (false, true) => drop(starved_bodies.fetch_add(1, Relaxed)),
            (true, false) => drop(starved_bodies.fetch_sub(1, Relaxed)),
            _ => {}
        }
        self.is_starved = is_starved;
    }

    /// Sets the memory in use, which may be more than was reserved.
    pub(crate) fn set(&mut self, bytes: usize) {
        let ClientShare { memory, space, .. } = &*self.share;
        let before = std::mem::replace(&mut self.bytes, bytes);
        match before.checked_sub(bytes) {
            Some(0) => {}
            Some(surplus) => {
                memory.release(surplus as u64);
                space.memory.used.release(surplus as u64);
            }
            None => {
                memory.add((bytes - before) as u64);
                space.memory.used.add((bytes - before) as u64);
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.set(0);
        self.set_starved(false);
    }
}

/// A number of bytes with a limit.
struct Budget {
    used: Used,
    max: AtomicU64,
}

impl Budget {
    fn new(max: u64) -> Budget {
        Budget { used: Used::default(), max: AtomicU64::new(max) }
    }

    fn reserve(&self, wanted: u64, min: u64) -> u64 {
        self.used.reserve(wanted, min, self.max.load(Relaxed))
    }
}

/// A number of bytes in use.
#[derive(Default)]
struct Used(AtomicU64);

impl Used {
    /// Adds up to `wanted` bytes within `max`, or none if there is room for fewer than `min`.
    fn reserve(&self, wanted: u64, min: u64, max: u64) -> u64 {
        let grant = |used: u64| match max.saturating_sub(used).min(wanted) {
            room if room < min => 0,
            room => room,
        };
        let add = |used: u64| Some(used + grant(used)).filter(|sum| *sum > used);
        self.0.fetch_update(Relaxed, Relaxed, add).map_or(0, grant)
    }

    fn has_room(&self, bytes: u64, max: u64) -> bool {
        self.0.load(Relaxed).saturating_add(bytes) <= max
    }

    fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Relaxed);
    }

    fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.0.fetch_sub(bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::spool::{MemoryReservation, SpoolLimits};

    fn client(last: u8) -> Option<Client> {
        Some(Client::new([192, 0, 2, last].into()))
    }

    fn space(memory_bytes: u64, memory_bytes_per_client: u64, disk_bytes: u64) -> Arc<BufferSpace> {
        let space = Arc::<BufferSpace>::default();
        space.set_limits(BufferSpaceLimits {
            memory_bytes,
            memory_bytes_per_client,
            disk_bytes,
            unread_bytes_per_client: 20,
        });
        space
    }

    #[test]
    fn clients_have_shares_of_the_memory() {
        let space = space(100, 40, 0);
        let memory = |client| Memory::new(space.share(client));
        let (mut one, mut same, mut other) =
            (memory(client(1)), memory(client(1)), memory(client(2)));
        assert_eq!((one.grow(30, 1), same.grow(30, 20), same.grow(30, 1)), (30, 0, 10));
        assert_eq!((same.grow(1, 1), other.grow(50, 1)), (0, 40));
        // Clients behind a trusted proxy have no limit of their own.
        let mut many = memory(None);
        assert_eq!((many.grow(50, 21), many.grow(50, 1), memory(None).grow(1, 1)), (0, 20, 0));
        // More than was reserved is used up first.
        one.set(35);
        assert_eq!((one.grow(1, 1), same.grow(1, 1)), (0, 0));
        one.set(5);
        assert_eq!(same.grow(100, 1), 25);
        drop((one, same, other, many));
        assert_eq!(space.memory.used.0.load(Relaxed), 0);
        assert!(space.clients().is_empty());
    }

    #[test]
    fn whole_bodies_occupy_the_share_of_their_client() {
        let limits = |space: &Arc<BufferSpace>| SpoolLimits {
            memory_bytes: 30,
            max_file_bytes: 0,
            space: space.clone(),
        };
        let space = space(100, 40, 0);
        let reserve =
            |body, held, last| MemoryReservation::new(body, held, &limits(&space), client(last));
        assert!(reserve(31, 31, 1).is_none(), "more than one body may have");
        let body = reserve(20, 30, 1).unwrap().hold(Bytes::from_static(b"body"));
        assert_eq!(&*body, b"body");
        assert!(reserve(11, 11, 1).is_none() && reserve(9, 10, 1).is_some());
        assert!(reserve(30, 30, 2).is_some());
        let part = body.slice(..1);
        drop(body);
        assert!(reserve(11, 11, 1).is_none());
        drop(part);
        assert!(reserve(11, 11, 1).is_some());
        assert_eq!(space.memory.used.0.load(Relaxed), 0);
    }

    #[test]
    fn a_client_has_half_of_the_disk() {
        let space = space(0, 0, 100);
        let (one, other, many) =
            (space.share(client(1)), space.share(client(2)), space.share(None));
        let reserve = |share: &ClientShare, bytes| {
            let is_possible = share.may_reserve_disk(bytes, bytes, BodyKind::Request);
            assert_eq!(share.reserve_disk(bytes, bytes, BodyKind::Request), is_possible);
            is_possible
        };
        assert!(reserve(&one, 30) && !reserve(&one, 21) && reserve(&one, 20));
        assert!(reserve(&other, 40) && !reserve(&many, 11) && reserve(&many, 10));
        one.release_disk(50);
        assert!(!reserve(&other, 11) && reserve(&other, 10) && reserve(&many, 40));
        other.release_disk(50);
        // Bytes that were not read count for a while, also if the client has no body.
        one.record_unread(49, BodyKind::Request);
        drop(one);
        let one = space.share(client(1));
        assert!(!reserve(&one, 3) && reserve(&one, 1));
        // The process does not count them.
        assert!(reserve(&other, 49));
    }

    #[test]
    fn responses_that_are_not_read_are_bounded() {
        let space = space(0, 0, 1_000);
        let (one, other, many) =
            (space.share(client(1)), space.share(client(2)), space.share(None));
        let write = |share: &ClientShare, bytes| {
            let is_possible = share.may_reserve_disk(bytes, bytes, BodyKind::Response);
            assert_eq!(share.reserve_disk(bytes, bytes, BodyKind::Response), is_possible);
            is_possible
        };
        assert!(write(&one, 20) && !write(&one, 1) && write(&other, 20) && write(&many, 100));
        assert_eq!(space.disk.used.0.load(Relaxed), 140);
        one.record_read(1, BodyKind::Response);
        assert!(!write(&one, 9) && write(&one, 8));
        // The bytes count after the end of the file, and read bytes are no credit.
        one.release_disk(28);
        one.record_read(28, BodyKind::Response);
        assert!(write(&one, 20) && !write(&one, 1));
        // Requests have a limit of their own.
        assert!(one.reserve_disk(100, 100, BodyKind::Request));
    }
}
