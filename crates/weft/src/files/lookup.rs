//! Lookup of a path in the file system.

use std::io;
use std::sync::Arc;

use crate::disk::Source;
use crate::files::disk_lookups::DiskLookups;
use crate::files::followed_root::{FollowedRoot, RootGeneration};
use crate::files::listing::{self, Folder, Listing};
use crate::files::listing_cache::ListingCache;
use crate::files::path_in_root::PathInRoot;
use crate::files::resource::{LookupContext, Resource};
use crate::files::root::{FileKind, MayBlock, Opened, Root, RootAccess, is_not_found};
use crate::files::settings::DirectorySettings;
use crate::sys::{self, Errno};

/// The root directory and its settings, shared by all workers.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) root: FollowedRoot,
    pub(super) settings: DirectorySettings,
    pub(super) listings: ListingCache,
    pub(super) lookups: DiskLookups,
}

/// Target of a path.
#[derive(Clone, Debug)]
pub(super) enum Target {
    File(Arc<Resource>),
    /// A file of unknown length, which is opened for each request.
    Generated,
    /// A folder, requested without a trailing slash.
    FolderWithoutSlash,
    /// A folder without an index file, with listings enabled.
    Listing,
    /// A file that the settings exclude.
    Excluded,
    NotFound,
}

/// Result of a lookup.
pub(super) struct Found {
    pub(super) target: Target,
    /// The root directory in which the target was looked up.
    pub(super) generation: RootGeneration,
}

/// Options of a lookup.
#[derive(Clone, Copy)]
pub(super) struct LookupOptions<'a> {
    /// The result of the previous lookup.
    pub(super) cached: Option<&'a Target>,
    pub(super) may_block: MayBlock,
    /// Set if a descriptor may be kept open in place of contents in memory.
    pub(super) may_keep_open: bool,
    /// Set if the request accepts a content coding.
    pub(super) accepts_coding: bool,
}

impl Target {
    /// Returns true if the known representations are sufficient to select the response.
    /// `accepts_coding` is true for a request that accepts a content coding.
    pub(super) fn is_complete(&self, accepts_coding: bool) -> bool {
        match self {
            Target::File(resource) => !accepts_coding || resource.has_all_codings(),
            Target::Generated
            | Target::FolderWithoutSlash
            | Target::Listing
            | Target::Excluded
            | Target::NotFound => true,
        }
    }

    /// Returns true if the target is unchanged, as far as can be seen without another lookup.
    pub(super) fn is_current(&self) -> bool {
        match self {
            Target::File(resource) => resource.is_current(),
            Target::Generated
            | Target::FolderWithoutSlash
            | Target::Listing
            | Target::Excluded
            | Target::NotFound => true,
        }
    }
}

impl Site {
    /// Looks up the target of a path.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if the lookup would wait and must not, and errors
    /// of the system, except for errors that mean [`Target::NotFound`].
    pub(super) fn lookup(
        &self,
        path: &PathInRoot<'_>,
        options: LookupOptions<'_>,
    ) -> io::Result<Found> {
        let may_block = options.may_block;
        let (root, generation) = self.root.current(self.settings.revalidate_after, may_block)?;
        let root = RootAccess { root: &root, may_block };
        let target = self.lookup_beneath(root, path, options)?;
        Ok(Found { target, generation })
    }

    fn lookup_beneath(
        &self,
        root: RootAccess<'_>,
        path: &PathInRoot<'_>,
        options: LookupOptions<'_>,
    ) -> io::Result<Target> {
        let opened = match root.root.open_path(path.path(), root.may_block) {
            Err(error) if is_not_found(&error) => {
                self.report_link(path.path(), &error);
                return Ok(Target::NotFound);
            }
            opened => opened?,
        };
        match (opened.kind == FileKind::Folder, path.is_folder()) {
            (true, true) => self.lookup_index(root, path, options),
            (true, false) => Ok(Target::FolderWithoutSlash),
            (false, true) => Ok(Target::NotFound),
            (false, false) => self.file_target(root, path.path(), opened, options),
        }
    }

    /// Reports a file that is not served because of a link on its path.
    #[cold]
    fn report_link(&self, path: &[u8], error: &io::Error) {
        if Errno::from_io_error(error) == Some(Errno::XDEV)
            && let Some(report) = self.settings.on_refused_link
            && let Some(root) = self.root.path()
        {
            report(root, sys::path_of_bytes(path));
        }
    }

    fn lookup_index(
        &self,
        root: RootAccess<'_>,
        folder: &PathInRoot<'_>,
        options: LookupOptions<'_>,
    ) -> io::Result<Target> {
        for name in &self.settings.index {
            let path = folder.join(name);
            if !self.settings.is_excluded(&path)
                && let Some(opened) = root.open_file(&path)?
            {
                return self.file_target(root, &path, opened, options);
            }
        }
        Ok(if self.settings.listing { Target::Listing } else { Target::NotFound })
    }

    fn file_target(
        &self,
        root: RootAccess<'_>,
        path: &[u8],
        opened: Opened,
        options: LookupOptions<'_>,
    ) -> io::Result<Target> {
        if self.settings.is_excluded(path) {
            return Ok(Target::Excluded);
        }
        match opened.kind {
            FileKind::File => {}
            FileKind::Generated => return Ok(Target::Generated),
            // A device or a pipe has no length, and may have no end.
            FileKind::Folder | FileKind::Other => return Ok(Target::NotFound),
        }
        let cached = match options.cached {
            Some(Target::File(resource)) => Some(resource),
            _ => None,
        };
        let LookupOptions { may_keep_open, accepts_coding, .. } = options;
        let context =
            LookupContext { settings: &self.settings, root, path, may_keep_open, accepts_coding };
        let built = Resource::build(context, opened, cached.map(|cached| &**cached))?;
        Ok(match (built, cached) {
            (None, Some(cached)) => Target::File(cached.clone()),
            (built, _) => built.map_or(Target::NotFound, |built| Target::File(Arc::new(built))),
        })
    }

    /// Reads the entries of a folder beneath `root`. Blocks on the disk.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn list(&self, root: &Root, path: &PathInRoot<'_>) -> io::Result<Listing> {
        let is_shown = |name: &[u8]| self.settings.dot_files || !name.starts_with(b".");
        let path = path.path().to_vec();
        let limit = self.settings.max_listed_entries;
        match root {
            Root::Embedded(files) => Ok(listing::list_embedded(files, path, limit, is_shown)),
            Root::Folder { fd, links } => {
                let opened = root.open_path(&path, MayBlock::Yes)?;
                let Source::Open(open) = opened.file.source else {
                    return Err(Errno::NOTDIR.into());
                };
                let folder = Folder { root: fd, path, links: *links };
                Ok(folder.read(&open, limit, is_shown)?)
            }
        }
    }
}
