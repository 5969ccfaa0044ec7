//! The files of a TLS configuration, and detection of changes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::net::tls::TlsSettings;

/// Versions of all files at one time; `None` for a missing file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileVersions(Vec<Option<FileVersion>>);

/// Identifies a version of a file: device, inode, size, and both times.
type FileVersion = (u64, u64, u64, (i64, i64), (i64, i64));

impl FileVersions {
    pub(super) fn read(settings: &TlsSettings) -> FileVersions {
        FileVersions(settings.paths().map(file_version).collect())
    }
}

/// Follows symbolic links, because some tools replace a whole directory by switching a link.
fn file_version(path: &Path) -> Option<FileVersion> {
    let file = std::fs::metadata(path).ok()?;
    let times = ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
    Some((file.dev(), file.ino(), file.size(), times.0, times.1))
}

impl TlsSettings {
    /// Paths of all files that are read.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let identities = self.identities.iter().flat_map(|identity| identity.paths());
        let tickets = self.ticket_keys.as_deref();
        identities.chain(self.client_auth.path()).chain(tickets)
    }
}
