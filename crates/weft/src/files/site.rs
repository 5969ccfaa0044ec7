//! What lies at a place of the directory, looked up in the file system.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use http::header::VARY;
use http::{HeaderName, HeaderValue};
use rustix::io::Errno;
use tokio::sync::Semaphore;

use crate::disk::Source;
use crate::files::listing::{self, Folder, Listing};
use crate::files::place::Place;
use crate::files::resource::{Look, Resource};
use crate::files::root::{Kind, Opened, Root, Wait};
use crate::files::settings::DirectorySettings;
use crate::proto::semantics::mime;

/// The directory and what it is served with, shared by all workers.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) root: Root,
    pub(super) settings: DirectorySettings,
    /// Places for those who compress files and list folders.
    pub(super) workshop: Arc<Semaphore>,
    /// Shares of the memory for lists.
    pub(super) lists: Arc<Semaphore>,
}

/// What lies at a place.
#[derive(Clone, Debug)]
pub(super) enum Found {
    File(Arc<Resource>),
    /// A folder that is asked for without its closing slash.
    Folder,
    /// A folder without an index, whose list may be shown.
    List,
    Nothing,
}

/// On what terms a place is looked up.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    /// What it was when it was looked up before.
    pub(super) known: Option<&'a Found>,
    pub(super) wait: Wait,
    /// Whether descriptors may be kept where contents would do.
    pub(super) may_hold: bool,
}

impl Found {
    /// Whether it is still so, as far as that shows without another look.
    pub(super) fn is_current(&self) -> bool {
        match self {
            Found::File(resource) => resource.is_current(),
            Found::Folder | Found::List | Found::Nothing => true,
        }
    }
}

impl Site {
    /// What lies at a place.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if that would wait and must not, and those
    /// of the system but for what says that there is nothing.
    pub(super) fn find(&self, place: &Place<'_>, terms: Terms<'_>) -> io::Result<Found> {
        let Some(opened) = self.look(place.path(), terms.wait)? else { return Ok(Found::Nothing) };
        match (opened.kind == Kind::Folder, place.is_folder()) {
            (true, true) => self.index(place, terms),
            (true, false) => Ok(Found::Folder),
            (false, true) => Ok(Found::Nothing),
            (false, false) => self.file(place.path(), opened, terms),
        }
    }

    fn index(&self, folder: &Place<'_>, terms: Terms<'_>) -> io::Result<Found> {
        for name in &self.settings.index {
            let path = folder.join(name);
            if let Some(opened) = self.look_for(&path, terms.wait)? {
                return self.file(&path, opened, terms);
            }
        }
        Ok(if self.settings.listing { Found::List } else { Found::Nothing })
    }

    fn file(&self, path: &[u8], opened: Opened, terms: Terms<'_>) -> io::Result<Found> {
        // A device or a pipe has no length, and may have no end.
        if opened.kind != Kind::File {
            return Ok(Found::Nothing);
        }
        let known = match terms.known {
            Some(Found::File(resource)) => Some(resource),
            _ => None,
        };
        let look = Look { site: self, path, wait: terms.wait, may_hold: terms.may_hold };
        let made = Resource::make(look, opened, known.map(|known| &**known))?;
        Ok(match (made, known) {
            (None, Some(known)) => Found::File(known.clone()),
            (made, _) => made.map_or(Found::Nothing, |made| Found::File(Arc::new(made))),
        })
    }

    /// Opens the file at this path, if there is one.
    fn look_for(&self, path: &[u8], wait: Wait) -> io::Result<Option<Opened>> {
        Ok(self.look(path, wait)?.filter(|opened| opened.kind == Kind::File))
    }

    /// What is in a folder. This waits for the disk.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn list(&self, place: &Place<'_>) -> io::Result<Listing> {
        let is_shown = |name: &[u8]| self.settings.dot_files || !name.starts_with(b".");
        let path = place.path().to_vec();
        let limit = self.settings.max_listed;
        match &self.root {
            Root::Embedded(files) => Ok(listing::among(files, path, limit, is_shown)),
            Root::Folder { fd, resolve } => {
                let opened = self.root.look(&path, Wait::Gladly)?;
                let Source::Open(open) = opened.file.source else {
                    return Err(Errno::NOTDIR.into());
                };
                let folder = Folder { root: fd.as_fd(), path, resolve: *resolve };
                Ok(folder.read(&*open, limit, is_shown)?)
            }
        }
    }

    /// Opens a file that may be served in place of another, if that can be done.
    pub(super) fn look_beside(&self, path: &[u8], wait: Wait) -> io::Result<Option<Opened>> {
        match self.look_for(path, wait) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
            found => found,
        }
    }

    /// Opens what lies at this path, if it is anything.
    fn look(&self, path: &[u8], wait: Wait) -> io::Result<Option<Opened>> {
        match self.root.look(path, wait) {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if is_nothing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The media type of a file by its name.
    pub(super) fn media_type(&self, path: &[u8]) -> HeaderValue {
        let mut types = self.settings.media_types.iter();
        let special = types.find(|(extension, _)| mime::has_extension(path, extension.as_bytes()));
        match special {
            Some((_, media_type)) => media_type.clone(),
            None => HeaderValue::from_static(mime::of(path)),
        }
    }

    /// Adds what the rules say of a file.
    pub(super) fn add_rules(&self, path: &[u8], fields: &mut Vec<(HeaderName, HeaderValue)>) {
        for rule in self.settings.headers.iter().filter(|rule| rule.matches(path)) {
            match fields.iter_mut().find(|(name, _)| *name == rule.name) {
                // What we vary by stays true.
                Some((name, value)) if *name == VARY => {
                    let both = [value.as_bytes(), b", ", rule.value.as_bytes()].concat();
                    *value = both.try_into().unwrap_or_else(|_| value.clone());
                }
                Some((_, value)) => *value = rule.value.clone(),
                None => fields.push((rule.name.clone(), rule.value.clone())),
            }
        }
    }
}

/// Whether nothing is there, it may not be reached, or it is no file that can be read.
pub(super) fn is_nothing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        [
            Errno::NOENT,
            Errno::NOTDIR,
            Errno::LOOP,
            Errno::XDEV,
            Errno::NAMETOOLONG,
            Errno::NXIO,
            Errno::NODEV,
            Errno::INVAL,
            Errno::ILSEQ,
        ]
        .contains(&errno)
    })
}
