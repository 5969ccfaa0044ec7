//! A body that is written to its file while it arrives, because it is too large for the memory.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::disk_shared::DiskShared;
use super::file_format::encode_head;
use super::folder::IncompleteFile;
use crate::cache::stored_response::StoredHead;
use crate::client_limit::ClientPermit;

/// Maximum number of bytes that wait for the disk. Beyond it the body waits.
const MAX_PENDING: usize = 1 << 20;

/// Maximum time for which a body waits for the disk, in total. Beyond it the body is not kept.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// A file that grows. Without [`finish`](Spool::finish), nothing remains of it.
pub(in crate::cache) struct Spool {
    target: Target,
    head: Vec<u8>,
    /// The file, unless a thread writes to it.
    file: Option<IncompleteFile>,
    writing: Option<JoinHandle<io::Result<IncompleteFile>>>,
    pending: Vec<Bytes>,
    pending_bytes: usize,
    length: u64,
    waited: Duration,
    _permit: ClientPermit,
}

/// The entry of the index, which is removed with this value.
struct Target {
    shared: Arc<DiskShared>,
    url: Box<str>,
    id: u64,
    is_complete: bool,
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_complete {
            self.shared.index().remove(&self.url, self.id);
        }
    }
}

impl Spool {
    /// Begins a file for the entry `id` of the index.
    pub(super) fn new(
        shared: Arc<DiskShared>,
        head: &StoredHead,
        id: u64,
        permit: ClientPermit,
    ) -> Option<Spool> {
        let url = head.key.url.clone();
        let target = Target { shared, url, id, is_complete: false };
        Some(Spool {
            head: encode_head(head)?,
            target,
            file: None,
            writing: None,
            pending: Vec::new(),
            pending_bytes: 0,
            length: 0,
            waited: Duration::ZERO,
            _permit: permit,
        })
    }

    /// Appends pieces. Returns false if the body cannot be kept: the disk is too slow or full, the
    /// body too large, or the response was purged.
    pub(in crate::cache) async fn push(&mut self, pieces: Vec<Bytes>) -> bool {
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        self.length += bytes as u64;
        self.pending_bytes += bytes;
        self.pending.extend(pieces);
        let Target { shared, url, id, .. } = &self.target;
        let Some(removed) = shared.index().grow(url, *id, self.length) else { return false };
        shared.queue.remove(removed);
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            if self.pending_bytes <= MAX_PENDING {
                return true;
            }
            let (start, left) = (Instant::now(), MAX_WAIT.saturating_sub(self.waited));
            match timeout(left, self.take_file()).await {
                Ok(true) => self.waited += start.elapsed(),
                _ => return false,
            }
        }
        if !self.take_file().await {
            return false;
        }
        self.write();
        true
    }

    /// Ends the file, and adds it to the index. Returns false if it cannot be kept.
    pub(in crate::cache) async fn finish(mut self) -> bool {
        if !self.take_file().await {
            return false;
        }
        self.write();
        if !self.take_file().await {
            return false;
        }
        let Some(file) = self.file.take() else { return false };
        let (head, target) = (std::mem::take(&mut self.head), &self.target);
        let (shared, url, id) = (target.shared.clone(), target.url.clone(), target.id);
        let finish = move || {
            let is_expired = shared.index().get(&url, id).is_some_and(|file| file.is_expired);
            match file.finish(&shared.folder, &head, is_expired) {
                Ok((bytes, version)) => {
                    shared.report_success();
                    let is_kept = shared.index().complete(&url, id, bytes, version);
                    if !is_kept {
                        shared.folder.remove(id);
                    }
                    is_kept
                }
                Err(error) => {
                    shared.report_failure("cannot write a file", &error);
                    false
                }
            }
        };
        let is_kept = tokio::task::spawn_blocking(finish).await.unwrap_or(false);
        self.target.is_complete = is_kept;
        is_kept
    }

    /// Takes the file back from the thread.
    async fn take_file(&mut self) -> bool {
        let Some(writing) = &mut self.writing else { return true };
        let written = writing.await;
        self.writing = None;
        match written {
            Ok(Ok(file)) => self.file = Some(file),
            Ok(Err(error)) => {
                self.target.shared.report_failure("cannot write a file", &error);
                return false;
            }
            Err(_) => return false,
        }
        true
    }

    /// Lets a thread write what is pending.
    fn write(&mut self) {
        let (file, pending) = (self.file.take(), std::mem::take(&mut self.pending));
        self.pending_bytes = 0;
        let (shared, id, head_length) =
            (self.target.shared.clone(), self.target.id, self.head.len());
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let mut file = match file {
                Some(file) => file,
                None => IncompleteFile::create(&shared.folder, id, head_length)?,
            };
            pending.iter().try_for_each(|piece| file.append(piece))?;
            Ok(file)
        }));
    }
}
