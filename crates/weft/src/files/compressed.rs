//! The forms of files that the server compresses, and their cost.
//!
//! 1. The first `GET` that accepts a coding waits while the file is compressed with little effort
//!    ([`Effort::Fast`]). A request that arrives meanwhile is answered without the coding. If the
//!    client leaves, the compression ends at its next step.
//! 2. The result is cached with the file, and all further requests are answered with it. A file for
//!    whose result the cache may have no room is not compressed: otherwise each request would
//!    compress it again, and each slow client would hold a copy.
//! 3. After [`POPULAR_USES`] responses from the cache, the file is compressed with more effort
//!    ([`Effort::Best`]) in the background. This result replaces the first one, and the cache keeps
//!    the file [`KEEP_FACTOR`](crate::files::cache::KEEP_FACTOR) times as long.
//!
//! `HEAD` never compresses: until step 2 its response has the fields of the coded form without
//! `Content-Length` (RFC 9110 §9.3.2). The process has one budget for all of this, see
//! `compression/budget.rs`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{io, mem, thread};

use bytes::Bytes;
use http::Method;

use crate::compression::budget::{BACKGROUND_PAUSE, Budget, Pending, Permit};
use crate::compression::{self, Coding, Effort, STEP_BYTES};
use crate::disk::{self, File};
use crate::files::cache::{CacheHandle, WeakCacheHandle};
use crate::files::resource::{Representation, Resource};
use crate::message::response::Response;

/// Responses from the cache after which a file is compressed with more effort: that takes four times
/// as long, and saves a fifth of the bytes of each further response.
const POPULAR_USES: u32 = 16;

/// A form of a file that the server compresses: a variant and a coding.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodedForm {
    pub(super) variant: usize,
    pub(super) coding: Coding,
}

/// The state of a [`CodedForm`]. Only the worker of its cache accesses it, so the lock is free.
#[derive(Debug, Default)]
pub(super) struct CodedSlot(Mutex<SlotState>);

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Empty,
    /// A request waits for the compression of the file, whose size is reserved in the cache.
    Compressing { reserved: u64 },
    /// Compression does not make the file smaller.
    NotSmaller,
    /// The result of the fast level, and the number of responses that were made of it.
    Fast(Representation, u32),
    /// The result of the fast level, while the file is compressed with more effort.
    Improving(Representation),
    /// The smallest of the results.
    Best(Representation),
}

/// Response from a [`CodedSlot`].
pub(super) enum SlotResponse {
    Empty,
    /// The file is sent without the coding.
    Uncoded,
    Coded(Response),
    /// As `Coded`; the file is worth more effort.
    Popular(Response),
}

impl CodedSlot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the response to a request for this form. Only a `GET` makes it more popular.
    pub(super) fn respond(&self, method: &Method) -> SlotResponse {
        match &mut *self.lock() {
            SlotState::Empty => SlotResponse::Empty,
            SlotState::Compressing { .. } | SlotState::NotSmaller => SlotResponse::Uncoded,
            SlotState::Fast(form, _) if *method != Method::GET => {
                SlotResponse::Coded(form.to_response())
            }
            SlotState::Fast(form, uses) => {
                *uses += 1;
                match *uses > POPULAR_USES {
                    true => SlotResponse::Popular(form.to_response()),
                    false => SlotResponse::Coded(form.to_response()),
                }
            }
            SlotState::Improving(form) | SlotState::Best(form) => {
                SlotResponse::Coded(form.to_response())
            }
        }
    }

    /// Bytes of memory that the form holds or will hold.
    pub(super) fn bytes(&self) -> usize {
        match &*self.lock() {
            SlotState::Empty | SlotState::NotSmaller => 0,
            SlotState::Compressing { reserved } => *reserved as usize,
            SlotState::Fast(form, _) | SlotState::Improving(form) | SlotState::Best(form) => {
                form.length() as usize
            }
        }
    }

    /// Returns true if the form was worth more effort.
    pub(super) fn is_best(&self) -> bool {
        matches!(*self.lock(), SlotState::Best(_))
    }

    fn set(&self, state: SlotState) {
        *self.lock() = state;
    }

    /// Begins to improve the result of the fast level, or begins to count again.
    fn begin_improving(&self, may_begin: bool) {
        let mut state = self.lock();
        *state = match mem::take(&mut *state) {
            SlotState::Fast(form, _) if may_begin => SlotState::Improving(form),
            SlotState::Fast(form, _) => SlotState::Fast(form, 0),
            other => other,
        };
    }

    /// Stores the outcome of a compression of a file with this representation.
    fn finish(&self, identity: &Representation, coding: Coding, outcome: Outcome) {
        let mut state = self.lock();
        let is_cancelled = matches!(outcome, Outcome::Cancelled);
        let shorter = |than: &Representation| match outcome {
            Outcome::Compressed(bytes) if (bytes.len() as u64) < than.length() => {
                Some(identity.with_coding(coding, bytes))
            }
            _ => None,
        };
        *state = match mem::take(&mut *state) {
            SlotState::Compressing { .. } if is_cancelled => SlotState::Empty,
            SlotState::Compressing { .. } => match shorter(identity) {
                Some(form) => SlotState::Fast(form, 0),
                None => SlotState::NotSmaller,
            },
            SlotState::Improving(fast) => SlotState::Best(shorter(&fast).unwrap_or(fast)),
            other => other,
        };
    }
}

/// Outcome of a [`Job`].
enum Outcome {
    Compressed(Bytes),
    Cancelled,
    /// The file cannot be read or compressed. This is not tried again for each request.
    Failed,
}

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
