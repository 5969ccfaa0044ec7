//! A store of files in a directory.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use tempfile::NamedTempFile;

use super::certificate_store::{CertificateStore, Lease, Version};
use crate::sys;

/// Maximum size of a file of the store, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Beginning of the names of files that are not written completely.
const TEMPORARY_PREFIX: &str = ".tmp";

/// Name of the file in a folder that the holder of the lease locks.
const LOCK: &str = "lock";

/// A store of files in a directory. Processes of one machine may share the directory.
///
/// Directories have the mode 0700, and files 0600. Files are replaced as a whole, so that they are
/// valid after a crash. A lease is a lock of the file `lock`, and ends with its process. A file has
/// at most 1 MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStore {
    directory: Option<PathBuf>,
    allows_ephemeral: bool,
}

impl FileStore {
    /// Creates a store. The first lease creates the directory.
    pub fn new(directory: impl Into<PathBuf>) -> FileStore {
        FileStore { directory: Some(directory.into()), allows_ephemeral: false }
    }

    /// Permits a directory on a file system that does not survive a restart, such as the file
    /// system of a container. Without this permission there are no leases on such a file system, so
    /// that nothing is ordered: authorities limit the number of certificates.
    pub fn ephemeral_state(mut self) -> FileStore {
        self.allows_ephemeral = true;
        self
    }

    /// Returns the default directory, the first that applies:
    /// - `$STATE_DIRECTORY/acme` under a service manager
    /// - `/var/lib/weft/acme` for root
    /// - `$XDG_STATE_HOME/weft/acme`
    /// - `~/.local/state/weft/acme`
    pub fn default_directory() -> Option<PathBuf> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(list) = from("STATE_DIRECTORY") {
            let first = std::env::split_paths(&list).next().unwrap_or_default();
            return Some(first.join("acme"));
        }
        if sys::is_root() {
            return Some("/var/lib/weft/acme".into());
        }
        let base = from("XDG_STATE_HOME").map(PathBuf::from);
        let base = base.or_else(|| Some(PathBuf::from(from("HOME")?).join(".local/state")));
        Some(base?.join("weft/acme"))
    }

    fn directory(&self) -> io::Result<&Path> {
        self.directory.as_deref().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "there is no directory for certificates")
        })
    }

    /// Returns the path of an entry or a folder.
    fn path(&self, key: &str) -> io::Result<PathBuf> {
        let is_plain = |component| matches!(component, Component::Normal(_));
        match Path::new(key).components().all(is_plain) {
            true => Ok(self.directory()?.join(key)),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Creates the directory.
    fn create(&self) -> io::Result<()> {
        let directory = self.directory()?;
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot create {}: {error}", directory.display()))
        };
        sys::create_private_directory(directory).map_err(failed)?;
        let is_ephemeral = sys::is_ephemeral(directory).map_err(failed)?;
        match is_ephemeral && !self.allows_ephemeral {
            true => Err(io::Error::other(format!(
                "the certificates in {} would be lost at a restart, and authorities limit how many \
                 they issue: mount a volume there, select another directory for the state, or set \
                 `ephemeral_state`",
                directory.display()
            ))),
            false => Ok(()),
        }
    }
}

/// A store in the [default directory](FileStore::default_directory). If there is none, each use
/// fails.
impl Default for FileStore {
    fn default() -> FileStore {
        FileStore { directory: FileStore::default_directory(), allows_ephemeral: false }
    }
}

impl CertificateStore for FileStore {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = existing(File::open(self.path(key)?))? else { return Ok(None) };
        let mut contents = Vec::new();
        match file.take(MAX_FILE_BYTES + 1).read_to_end(&mut contents)? as u64 {
            0..=MAX_FILE_BYTES => Ok(Some(contents)),
            _ => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    fn version(&self, key: &str) -> io::Result<Option<Version>> {
        let file = existing(fs::metadata(self.path(key)?))?;
        Ok(file.map(|file| Version::new(sys::file_version(&file))))
    }

    fn put(&self, key: &str, contents: &[u8]) -> io::Result<()> {
        let path = self.path(key)?;
        written(&path, contents)?.persist(&path)?;
        sync_folder(&path)
    }

    /// Replaces an entry by comparing and writing in turn: the caller has the lease.
    fn put_if(&self, key: &str, contents: &[u8], version: Option<Version>) -> io::Result<bool> {
        if version.is_some() {
            let is_expected = self.version(key)? == version;
            return if is_expected { self.put(key, contents).map(|()| true) } else { Ok(false) };
        }
        let path = self.path(key)?;
        match written(&path, contents)?.persist_noclobber(&path) {
            Ok(_) => sync_folder(&path).map(|()| true),
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(failed) => Err(failed.error),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = existing(fs::read_dir(self.path(folder)?))?.into_iter().flatten();
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.map(|entry| entry.file_name().into_string().ok()).transpose()
        };
        entries.filter_map(name).collect()
    }

    fn remove(&self, folder: &str) -> io::Result<()> {
        existing(fs::remove_dir_all(self.path(folder)?)).map(|_| ())
    }

    fn lease(&self, folder: &str) -> io::Result<Option<Lease>> {
        self.create()?;
        let folder = self.path(folder)?;
        lock(&folder).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot lock {}: {error}", folder.display()))
        })
    }
}

/// Writes a temporary file beside `path`, with the mode 0600.
fn written(path: &Path, contents: &[u8]) -> io::Result<NamedTempFile> {
    let folder = path.parent().unwrap_or(path);
    sys::create_private_directory(folder)?;
    // Has the mode 0600.
    let mut file = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(folder)?;
    file.write_all(contents)?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Returns `None` for a file that does not exist.
fn existing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

fn lock(folder: &Path) -> io::Result<Option<Lease>> {
    sys::create_private_directory(folder)?;
    let file = sys::open_lock_file(&folder.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => {
            remove_temporary(folder)?;
            Ok(Some(Lease::new(file)))
        }
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the temporary files of a process that was killed. No other process writes: the caller
/// has the lock.
fn remove_temporary(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const FOLDER: &str = "certificates/example.org";
    const KEY: &str = "certificates/example.org/certificate.pem";

    #[test]
    fn files_are_private_and_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path().join("a/b")).ephemeral_state();
        store.create().unwrap();
        assert_eq!(store.get(KEY).unwrap(), None);
        for text in ["first", "second"] {
            store.put(KEY, text.as_bytes()).unwrap();
            assert_eq!(store.get(KEY).unwrap().unwrap(), text.as_bytes());
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = store.path(KEY).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let directory = store.directory().unwrap();
        assert_eq!((mode(&folder.path().join("a")), mode(directory)), (0o700, 0o700));
        let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn versions_differ_after_each_change() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path()).ephemeral_state();
        let mut versions = vec![store.version(KEY).unwrap()];
        assert_eq!(versions, [None]);
        for _ in 0..3 {
            store.put(KEY, b"equal").unwrap();
            let version = store.version(KEY).unwrap();
            assert_eq!(store.version(KEY).unwrap(), version);
            assert!(!versions.contains(&version), "{version:?} {versions:?}");
            versions.push(version);
        }
    }

    #[test]
    fn entries_are_created_once_and_replaced_by_version() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path()).ephemeral_state();
        assert!(store.put_if(KEY, b"first", None).unwrap());
        assert!(!store.put_if(KEY, b"second", None).unwrap());
        assert!(!store.put_if(KEY, b"second", Some(Version::new(1))).unwrap());
        assert_eq!(store.get(KEY).unwrap().unwrap(), b"first");
        let version = store.version(KEY).unwrap();
        assert!(store.put_if(KEY, b"second", version).unwrap());
        assert!(!store.put_if(KEY, b"third", version).unwrap());
        assert_eq!(store.get(KEY).unwrap().unwrap(), b"second");
        let left = fs::read_dir(store.path(FOLDER).unwrap()).unwrap().count();
        assert_eq!(left, 1, "a temporary file is left");
    }

    #[test]
    fn lists_and_removes_folders() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path()).ephemeral_state();
        assert_eq!(store.list("certificates").unwrap(), [""; 0]);
        store.put(KEY, b"").unwrap();
        assert_eq!(store.list("certificates").unwrap(), ["example.org"]);
        store.remove(FOLDER).unwrap();
        store.remove(FOLDER).unwrap();
        assert_eq!(store.list("certificates").unwrap(), [""; 0]);
    }

    #[test]
    fn keys_stay_in_the_directory_and_files_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path().join("store")).ephemeral_state();
        fs::write(folder.path().join("other"), "secret").unwrap();
        for key in ["../other", "/etc/hostname", "certificates/../../other"] {
            assert!(store.get(key).is_err(), "{key}");
            assert!(store.put(key, b"").is_err(), "{key}");
        }
        store.put(KEY, &vec![b'a'; MAX_FILE_BYTES as usize]).unwrap();
        assert_eq!(store.get(KEY).unwrap().unwrap().len() as u64, MAX_FILE_BYTES);
        store.put(KEY, &vec![b'a'; MAX_FILE_BYTES as usize + 1]).unwrap();
        assert_eq!(store.get(KEY).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn one_process_has_the_lease() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path()).ephemeral_state();
        let lease = store.lease(FOLDER).unwrap();
        assert!(lease.is_some());
        assert!(store.lease(FOLDER).unwrap().is_none());
        assert!(store.lease("certificates/b.example").unwrap().is_some());
        drop(lease);
        // Another test may start a process, which inherits the lock until it executes its program.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while store.lease(FOLDER).unwrap().is_none() {
            assert!(std::time::Instant::now() < deadline, "the lock was not released");
            std::thread::yield_now();
        }
    }

    #[test]
    fn files_of_killed_processes_are_removed_by_the_next_holder_of_the_lease() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::new(folder.path()).ephemeral_state();
        store.put(KEY, b"complete").unwrap();
        let left = store.path(FOLDER).unwrap().join(format!("{TEMPORARY_PREFIX}abc"));
        fs::write(&left, "half").unwrap();
        let _lease = store.lease(FOLDER).unwrap();
        assert!(!left.exists());
        assert_eq!(store.get(KEY).unwrap().unwrap(), b"complete");
    }

    #[test]
    fn ephemeral_directories_need_permission() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
        let store = FileStore::new(folder.path());
        let reason = store.lease(FOLDER).unwrap_err().to_string();
        assert!(reason.contains("would be lost at a restart"), "{reason}");
        assert!(store.ephemeral_state().lease(FOLDER).unwrap().is_some());
    }
}
