//! Lookups that wait for the disk: a limited number of threads, with a share per client.
//!
//! On a disk or network file system that does not respond, each lookup occupies a thread of the
//! blocking pool, which other directories and the program use, too.

use std::io;
use std::time::Duration;

use crate::client_limit::{Client, ClientLimit, ClientLimitSettings, ClientPermit};
use crate::sys::Errno;

/// Maximum number of threads that look up paths of one directory. One client can have half.
const MAX_LOOKUPS: usize = 64;

/// Maximum number of lookups that wait for a thread. One client can have half.
const MAX_QUEUED: usize = 1024;

/// Maximum wait for a thread. The response is 503 then, as with a full queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// The threads for lookups of one directory. All workers share them.
#[derive(Debug)]
pub(super) struct DiskLookups(ClientLimit);

impl DiskLookups {
    pub(super) fn new() -> DiskLookups {
        DiskLookups(ClientLimit::new(ClientLimitSettings {
            max_queued: MAX_QUEUED,
            queue_timeout: QUEUE_TIMEOUT,
            ..ClientLimitSettings::new(MAX_LOOKUPS)
        }))
    }

    /// Runs a lookup in a blocking thread.
    ///
    /// # Errors
    /// As [`DiskLookups::permit`], and errors of the lookup.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        client: Option<Client>,
        lookup: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.permit(client).await?.run(lookup).await
    }

    /// Returns the permit for a thread.
    ///
    /// # Errors
    /// `EBUSY` if the lookups of this client, or of all, use up the threads and the queue.
    pub(super) async fn permit(&self, client: Option<Client>) -> io::Result<LookupPermit> {
        Ok(LookupPermit(self.0.acquire(client).await.ok_or(Errno::BUSY)?))
    }
}

/// The permit for one thread.
pub(super) struct LookupPermit(ClientPermit);

impl LookupPermit {
    /// Runs a lookup in a blocking thread, which it occupies to its end even if the client
    /// disconnects.
    pub(super) async fn run<T: Send + 'static>(
        self,
        lookup: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let found = self.0.spawn_blocking(lookup).await;
        found.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::time::timeout;

    /// Lookups of one client that do not end leave the other half of the threads to others.
    #[test]
    fn a_client_has_half_of_the_disk_lookups() {
        let lookups = DiskLookups::new();
        let [one, other] = [1, 2].map(|last| Some(Client::new([192, 0, 2, last].into())));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let held: Vec<_> = (0..MAX_LOOKUPS).map_while(|_| lookups.0.try_acquire(one)).collect();
            assert_eq!(held.len(), MAX_LOOKUPS / 2);
            let waits = timeout(Duration::from_millis(20), lookups.run(one, || Ok(1)));
            assert!(waits.await.is_err(), "the lookup waits");
            assert_eq!(lookups.run(other, || Ok(2)).await.unwrap(), 2);
            drop(held);
            assert_eq!(lookups.run(one, || Ok(3)).await.unwrap(), 3);
            // A request that leaves does not free the thread of its lookup.
            let (release, held) = std::sync::mpsc::channel::<()>();
            let mut lookup = Box::pin(lookups.run(one, move || Ok(held.recv().is_ok())));
            assert!((&mut lookup).now_or_never().is_none());
            drop(lookup);
            assert_eq!(lookups.0.in_use(), 1);
            drop(release);
        });
    }

    #[test]
    fn lookups_over_the_queue_are_refused() {
        let lookups = DiskLookups::new();
        let one = Some(Client::new([192, 0, 2, 1].into()));
        let _held: Vec<_> = (0..MAX_LOOKUPS).map_while(|_| lookups.0.try_acquire(one)).collect();
        let run = || Box::pin(lookups.run(one, || Ok(())));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut queued: Vec<_> = (0..MAX_QUEUED / 2).map(|_| run()).collect();
            assert!(queued.iter_mut().all(|lookup| lookup.now_or_never().is_none()));
            let error = run().now_or_never().expect("an error at once").unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::BUSY));
        });
    }
}
