//! The compression of files, and its cost.
//!
//! 1. The first `GET` that accepts a coding waits while the file is compressed with little effort
//!    ([`Effort::Fast`]). A request that arrives meanwhile is answered without the coding. If the
//!    client leaves, the compression ends at its next step.
//! 2. The result is cached with the file, and all further requests are answered with it. A file for
//!    whose result the cache may have no room is not compressed: otherwise each request would
//!    compress it again, and each slow client would hold a copy.
//! 3. After `POPULAR_USES` responses from the cache, the file is compressed with more effort
//!    ([`Effort::Best`]) in the background. This result replaces the first one, and the cache keeps
//!    the file [`KEEP_FACTOR`](crate::files::cache::KEEP_FACTOR) times as long.
//!
//! `HEAD` never compresses: until step 2 its response has the fields of the coded form without
//! `Content-Length` (RFC 9110 §9.3.2). The process has one budget for all of this, see
//! `compression/budget.rs`.

use std::sync::{Arc, Weak};
use std::{io, thread};

use bytes::Bytes;

use crate::compression::budget::{BACKGROUND_PAUSE, Budget, Pending, Permit};
use crate::compression::{self, Effort, STEP_BYTES};
use crate::disk::{self, File};
use crate::files::cache::{CacheHandle, WeakCacheHandle};
use crate::files::coded_slot::{CodedForm, Outcome, SlotState};
use crate::files::resource::Resource;

/// A compression of a file for its cached resource.
struct Job {
    cache: WeakCacheHandle,
    key: Box<[u8]>,
    resource: Weak<Resource>,
    form: CodedForm,
    file: Arc<File>,
}

/// Compresses a form that is not in the cache yet, and returns when it is there. The form is not
/// compressed if the cache or the budget has no room. If the returned future is dropped, the
/// compression is cancelled.
pub(super) async fn compress(
    cache: &CacheHandle,
    key: &[u8],
    resource: &Arc<Resource>,
    form: CodedForm,
) {
    let identity = resource.identity(form);
    if !cache.has_room(key, resource, identity.length() as usize) {
        return;
    }
    let Some(pending) = Budget::process().admit(identity.length()) else { return };
    resource.slot(form).set(SlotState::Compressing { reserved: identity.length() });
    cache.recount(key, resource);
    let waiting = Arc::new(());
    let job = Job::new(cache, key, resource, form);
    let task = tokio::spawn(job.compress(pending, Arc::downgrade(&waiting)));
    // The task does not fail; it ends early only with the runtime.
    let _ = task.await;
    drop(waiting);
}

/// Begins to compress a form with more effort, unless another one is being compressed so.
pub(super) fn improve(cache: &CacheHandle, key: &[u8], resource: &Arc<Resource>, form: CodedForm) {
    let permit = Budget::process().background();
    resource.slot(form).begin_improving(permit.is_some());
    if let Some(permit) = permit {
        tokio::spawn(Job::new(cache, key, resource, form).improve(permit));
    }
}

impl Job {
    fn new(cache: &CacheHandle, key: &[u8], resource: &Arc<Resource>, form: CodedForm) -> Job {
        Job {
            cache: cache.downgrade(),
            key: key.into(),
            resource: Arc::downgrade(resource),
            form,
            file: resource.identity(form).file().clone(),
        }
    }

    /// Compresses the file as long as `waiting` is alive.
    async fn compress(self, pending: Pending, waiting: Weak<()>) {
        let permit = pending.thread().await;
        let is_wanted = move || waiting.strong_count() > 0;
        self.run(permit, Effort::Fast, is_wanted).await;
    }

    /// Compresses the file with more effort, as long as it is in a cache.
    async fn improve(self, permit: Permit) {
        let resource = self.resource.clone();
        let is_wanted = move || {
            thread::sleep(BACKGROUND_PAUSE);
            resource.strong_count() > 0
        };
        self.run(permit, Effort::Best, is_wanted).await;
    }

    async fn run(
        self,
        permit: Permit,
        effort: Effort,
        mut is_wanted: impl FnMut() -> bool + Send + 'static,
    ) {
        let (coding, file) = (self.form.coding, self.file);
        let work = move || -> io::Result<Option<Bytes>> {
            let _permit = permit;
            if !is_wanted() {
                return Ok(None);
            }
            let (length, steps) = (file.length as usize, file.steps(STEP_BYTES));
            compression::compress(coding, effort, length, steps, is_wanted)
        };
        let outcome = match disk::blocking(work).await {
            Ok(Some(bytes)) => Outcome::Compressed(bytes),
            Ok(None) => Outcome::Cancelled,
            Err(_) => Outcome::Failed,
        };
        let Some(resource) = self.resource.upgrade() else { return };
        resource.slot(self.form).finish(resource.identity(self.form), coding, outcome);
        if let Some(cache) = self.cache.upgrade() {
            cache.recount(&self.key, &resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Application;
    use crate::compression::Coding;
    use crate::files::Directory;
    use crate::files::lookup::Target;
    use crate::files::settings::DirectorySettings;
    use crate::testing::request;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};

    #[test]
    fn compression_is_cancelled_when_its_client_leaves() {
        let Some(coding) = Coding::ALL.into_iter().find(|it| compression::is_available(*it)) else {
            return;
        };
        let text: &str = "A text that is compressed. ".repeat(100_000).leak();
        let files = [("a.txt", text.as_bytes())];
        let directory = Directory::embedded(files, DirectorySettings::default());
        let request = request(format!(
            "GET /a.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {}\r\n\r\n",
            coding.token()
        ));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            {
                let mut call = pin!(directory.call(request));
                let mut cx = Context::from_waker(Waker::noop());
                assert!(call.as_mut().poll(&mut cx).is_pending());
            }
            let cached = directory.cache.get(b"a.txt").expect("a cached file").target;
            let Target::File(resource) = cached else { panic!("a file") };
            let slot = resource.slot(CodedForm { variant: 0, coding });
            // The text itself, and as much for the result.
            assert!(matches!(*slot.lock(), SlotState::Compressing { .. }));
            assert_eq!(resource.bytes_in_memory(), 2 * text.len());
            let start = Instant::now();
            while !matches!(*slot.lock(), SlotState::Empty) {
                assert!(!matches!(*slot.lock(), SlotState::Fast(..)), "the file is compressed");
                assert!(start.elapsed() < Duration::from_secs(60), "timed out");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(resource.bytes_in_memory(), text.len());
        });
    }
}
