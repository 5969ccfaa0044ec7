//! The files of accounts and certificates.
//!
//! ```text
//! accounts/AUTHORITY/key.pem         private key of the account
//! accounts/AUTHORITY/account.json    the account, once the authority has confirmed it
//! certificates/NAME/certificate.pem  private key and certificate chain
//! certificates/NAME/state.json       failures, and the time of the next attempt
//! certificates/NAME/lock             locked by the process with an order for the name
//! ```
//!
//! Directories have the mode 0700 and files 0600. Files are replaced as a whole, so that a crash at
//! any time leaves a valid one. A lock ends with its process.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::settings::Name;

/// `f_type` of file systems that do not survive a restart (statfs(2)): tmpfs, ramfs, and the overlay
/// of a container.
const EPHEMERAL_FILE_SYSTEMS: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x794c_7630];

/// Maximum size of a file of the store, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Beginning of the names of files that are not written completely.
const TEMPORARY_PREFIX: &str = ".tmp";

/// A directory with accounts and certificates, which several processes may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Store(PathBuf);

/// State of a name between attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NameState {
    /// Failures since the last success.
    pub(crate) failures: u32,
    /// Earliest time of the next attempt, in seconds since 1970.
    pub(crate) retry_at: u64,
    pub(crate) last_error: Option<String>,
    /// Times between which the authority wants a renewal, in seconds since 1970.
    pub(crate) window: Option<(u64, u64)>,
    /// Time at which the authority is to be asked for the window again, in seconds since 1970.
    pub(crate) ask_at: u64,
}

/// Identifies the versions of a name's certificate and state: inode, size, and time of modification in
/// seconds and nanoseconds; `None` for a missing file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileVersions([Option<(u64, u64, i64, i64)>; 2]);

/// Right to order a certificate, which only one process has.
pub(super) struct Lock(#[expect(dead_code, reason = "closing the file ends the lock")] File);

impl Store {
    /// Returns the directory for `given`, or else the default of the platform, which is that of the
    /// service manager, `/var/lib/weft` for root, or that of the user.
    ///
    /// # Errors
    /// If there is no default.
    pub(crate) fn new(given: Option<&Path>) -> Result<Store, String> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(path) = given {
            return Ok(Store(path.to_owned()));
        }
        if let Some(list) = from("STATE_DIRECTORY") {
            let first = std::env::split_paths(&list).next().unwrap_or_default();
            return Ok(Store(first.join("acme")));
        }
        if rustix::process::geteuid().is_root() {
            return Ok(Store("/var/lib/weft/acme".into()));
        }
        let base = from("XDG_STATE_HOME").map(PathBuf::from);
        let base = base.or_else(|| Some(PathBuf::from(from("HOME")?).join(".local/state")));
        base.map(|base| Store(base.join("weft/acme"))).ok_or_else(|| {
            "there is no directory for certificates: set `state` in [acme]".to_owned()
        })
    }

    /// Creates the directories.
    ///
    /// # Errors
    /// If that fails, or if the directory is on a file system that does not survive a restart, unless
    /// `allows_ephemeral`.
    pub(crate) fn create(&self, allows_ephemeral: bool) -> Result<(), String> {
        let failed = |error: io::Error| format!("cannot create {}: {error}", self.0.display());
        create_dir(&self.0).map_err(failed)?;
        let file_system = rustix::fs::statfs(&self.0).map_err(|error| failed(error.into()))?;
        let is_ephemeral = u32::try_from(file_system.f_type)
            .is_ok_and(|kind| EPHEMERAL_FILE_SYSTEMS.contains(&kind));
        match is_ephemeral && !allows_ephemeral {
            true => Err(format!(
                "the certificates in {} would be lost at a restart, and authorities limit how many \
                 they issue: mount a volume there, set `state` in [acme], or set `ephemeral_state`",
                self.0.display()
            )),
            false => Ok(()),
        }
    }

    /// Path of the file with the private key and the certificate chain of a name.
    pub(crate) fn certificate_path(&self, name: &Name) -> PathBuf {
        self.of_name(name).join("certificate.pem")
    }

    pub(super) fn write_certificate(&self, name: &Name, pem: &str) -> io::Result<()> {
        self.write(&self.certificate_path(name), pem.as_bytes())
    }

    pub(super) fn has_certificate(&self, name: &Name) -> bool {
        self.certificate_path(name).exists()
    }

    /// Returns all names that have files.
    pub(crate) fn names(&self) -> Vec<Name> {
        let entries = fs::read_dir(self.0.join("certificates")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Removes the files of a name, unless a process has an order for it.
    pub(super) fn remove(&self, name: &Name) {
        if let Ok(Some(_lock)) = self.lock(name)
            && let Err(error) = fs::remove_dir_all(self.of_name(name))
        {
            log::error!("cannot remove the files of {name}: {error}");
        }
    }

    /// Returns the state of a name, which is the default if there is none.
    pub(crate) fn state(&self, name: &Name) -> NameState {
        read_json(&self.of_name(name).join("state.json")).unwrap_or_default()
    }

    pub(super) fn write_state(&self, name: &Name, state: &NameState) -> io::Result<()> {
        self.write_json(&self.of_name(name).join("state.json"), state)
    }

    pub(super) fn file_versions(&self, name: &Name) -> FileVersions {
        let version = |path: PathBuf| {
            let file = fs::metadata(path).ok()?;
            Some((file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
        };
        let state = self.of_name(name).join("state.json");
        FileVersions([version(self.certificate_path(name)), version(state)])
    }

    /// Locks a name; `None` if another process has an order for it.
    pub(super) fn lock(&self, name: &Name) -> io::Result<Option<Lock>> {
        lock(&self.of_name(name))
    }

    pub(super) fn lock_account(&self, directory: &str) -> io::Result<Option<Lock>> {
        lock(&self.of_account(directory))
    }

    /// Returns the private key of the account with an authority, in PEM.
    pub(super) fn account_key(&self, directory: &str) -> Option<String> {
        let text = read(&self.of_account(directory).join("key.pem")).ok()?;
        String::from_utf8(text).ok()
    }

    pub(super) fn write_account_key(&self, directory: &str, pem: &str) -> io::Result<()> {
        self.write(&self.of_account(directory).join("key.pem"), pem.as_bytes())
    }

    pub(super) fn account<T: DeserializeOwned>(&self, directory: &str) -> Option<T> {
        read_json(&self.of_account(directory).join("account.json"))
    }

    pub(super) fn write_account<T: Serialize>(
        &self,
        directory: &str,
        account: &T,
    ) -> io::Result<()> {
        self.write_json(&self.of_account(directory).join("account.json"), account)
    }

    fn of_name(&self, name: &Name) -> PathBuf {
        self.0.join("certificates").join(name.as_str())
    }

    /// The directory of an authority has its URL as name, without the characters of paths.
    fn of_account(&self, directory: &str) -> PathBuf {
        let url = directory.split_once("://").map_or(directory, |(_, rest)| rest);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let name: String = url.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        self.0.join("accounts").join(name.trim_matches(['.', '_']))
    }

    fn write_json<T: Serialize>(&self, path: &Path, value: &T) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(value)?;
        text.push(b'\n');
        self.write(path, &text)
    }

    /// Replaces a file as a whole.
    fn write(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let folder = path.parent().unwrap_or(&self.0);
        create_dir(folder)?;
        // Has the mode 0600.
        let mut file = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(folder)?;
        file.write_all(contents)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        File::open(folder)?.sync_all()
    }
}

fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn lock(folder: &Path) -> io::Result<Option<Lock>> {
    create_dir(folder)?;
    let options = OpenOptions::new().write(true).create(true).mode(0o600).clone();
    let file = options.open(folder.join("lock"))?;
    match file.try_lock() {
        Ok(()) => {
            remove_temporary(folder)?;
            Ok(Some(Lock(file)))
        }
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the temporary files of a process that was killed. Only the holder of the lock writes.
fn remove_temporary(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path)?.len() {
        0..=MAX_FILE_BYTES => fs::read(path),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&read(path).ok()?).ok()
}

/// Returns seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_private_and_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(Some(&folder.path().join("a/b"))).unwrap();
        store.create(true).unwrap();
        let name: Name = "example.org".parse().unwrap();
        for text in ["first", "second"] {
            store.write_certificate(&name, text).unwrap();
            assert_eq!(fs::read_to_string(store.certificate_path(&name)).unwrap(), text);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = store.certificate_path(&name);
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!((mode(&folder.path().join("a/b")), mode(&store.0)), (0o700, 0o700));
        let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        let state = NameState { failures: 3, window: Some((1, 2)), ..NameState::default() };
        store.write_state(&name, &state).unwrap();
        assert_eq!(store.state(&name), state);
        // A state of another release, or one that is no JSON, is none.
        fs::write(store.of_name(&name).join("state.json"), "{\"failures\": 7, \"new\": 1}")
            .unwrap();
        assert_eq!(store.state(&name).failures, 7);
        fs::write(store.of_name(&name).join("state.json"), "{").unwrap();
        assert_eq!(store.state(&name), NameState::default());
    }

    #[test]
    fn one_process_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(Some(folder.path())).unwrap();
        let name: Name = "example.org".parse().unwrap();
        let lock = store.lock(&name).unwrap();
        assert!(lock.is_some());
        assert!(store.lock(&name).unwrap().is_none());
        assert!(store.lock(&"b.example".parse().unwrap()).unwrap().is_some());
        drop(lock);
        // A process that another test starts has the lock, too, until it executes its program.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while store.lock(&name).unwrap().is_none() {
            assert!(std::time::Instant::now() < deadline, "the lock was not released");
            std::thread::yield_now();
        }
    }

    #[test]
    fn files_of_killed_processes_are_removed_by_the_next_holder_of_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(Some(folder.path())).unwrap();
        let name: Name = "example.org".parse().unwrap();
        store.write_certificate(&name, "complete").unwrap();
        let left = store.of_name(&name).join(format!("{TEMPORARY_PREFIX}abc"));
        fs::write(&left, "half").unwrap();
        let _lock = store.lock(&name).unwrap();
        assert!(!left.exists());
        assert_eq!(fs::read_to_string(store.certificate_path(&name)).unwrap(), "complete");
    }

    #[test]
    fn accounts_of_different_authorities_are_apart() {
        let store = Store("/s".into());
        for (url, expected) in [
            ("https://a.example/directory", "/s/accounts/a.example_directory"),
            ("https://a.example:14000/dir", "/s/accounts/a.example_14000_dir"),
            ("https://../../x", "/s/accounts/x"),
            ("https://a/../../x/", "/s/accounts/a_.._.._x"),
        ] {
            assert_eq!(store.of_account(url), Path::new(expected), "{url}");
        }
    }
}
