//! Which files TLS is made of, and whether they have changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::net::tls::Settings;

/// How all files looked at one time.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Files(Vec<Option<Look>>);

/// What tells two versions of a file apart: device, inode, size, and both times.
type Look = (u64, u64, u64, (i64, i64), (i64, i64));

impl Files {
    pub(super) fn look(settings: &Settings) -> Files {
        Files(settings.paths().map(look).collect())
    }
}

/// Symbolic links are followed: some swap a whole folder by one.
fn look(path: &Path) -> Option<Look> {
    let file = std::fs::metadata(path).ok()?;
    let times = ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
    Some((file.dev(), file.ino(), file.size(), times.0, times.1))
}

impl Settings {
    /// The files that are read.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let identities = self.identities.iter().flat_map(|identity| identity.paths());
        let tickets = self.ticket_keys.as_deref();
        identities.chain(self.client_auth.path()).chain(tickets)
    }
}
