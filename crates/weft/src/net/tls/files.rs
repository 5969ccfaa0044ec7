//! The files of a TLS configuration, and detection of changes.

use std::path::Path;

use crate::disk::FileVersion;
use crate::net::tls::settings::TlsSettings;
use crate::sys::stat;

/// Versions of all files at one time; `None` for a missing file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileVersions(Vec<Option<FileVersion>>);

impl FileVersions {
    pub(super) fn read(settings: &TlsSettings) -> FileVersions {
        FileVersions(settings.paths().map(file_version).collect())
    }
}

/// Follows symbolic links, because some tools replace a whole directory by switching a link.
fn file_version(path: &Path) -> Option<FileVersion> {
    stat(path).ok().map(|stat| FileVersion::new(&stat))
}

impl TlsSettings {
    /// Paths of all files that are read.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let identities = self.identities.iter().flat_map(|identity| identity.paths());
        let tickets = self.ticket_keys.as_deref();
        identities.chain(self.client_auth.path()).chain(tickets)
    }
}
