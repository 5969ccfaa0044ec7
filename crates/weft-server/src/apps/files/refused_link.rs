//! The log line about a symbolic link that is not followed. Its file is 404, although it exists,
//! and nothing else says why.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum time between two lines of the process: any client can cause one.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Logs the link on the path of a file beneath a folder, in a thread of its own, because it is
/// looked for on the disk.
pub(super) fn report(folder: &Path, file: &Path) {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_some_and(|last| last.elapsed() < MIN_INTERVAL) {
        return;
    }
    *last = Some(Instant::now());
    drop(last);
    let (folder, file) = (folder.to_owned(), file.to_owned());
    let thread = std::thread::Builder::new().name("weft-link".to_owned());
    // Without a thread, the next request is reported.
    drop(thread.spawn(move || {
        if let Some(message) = message(&folder, &file) {
            log::warn!("{message}");
        }
    }));
}

/// Describes the first link that is absolute or leads out of the folder.
fn message(folder: &Path, file: &Path) -> Option<String> {
    let root = folder.canonicalize().ok()?;
    let mut path = PathBuf::from(folder);
    for name in file {
        path.push(name);
        let Ok(target) = std::fs::read_link(&path) else { continue };
        let is_inside = path.canonicalize().is_ok_and(|found| found.starts_with(&root));
        let reason = match (target.is_absolute(), is_inside) {
            (true, true) => "is absolute: a relative link within the folder is followed",
            (_, false) => "leads out of the folder",
            (false, true) => continue,
        };
        return Some(format!(
            "the symbolic link {} -> {} is not followed, and its files get 404: it {reason}, and \
             `links = \"anywhere\"` follows all links",
            path.display(),
            target.display()
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_the_link_and_the_setting() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("www");
        std::fs::create_dir_all(folder.join("a")).unwrap();
        std::fs::write(folder.join("a/x"), "").unwrap();
        std::fs::write(parent.path().join("y"), "").unwrap();
        symlink(folder.join("a"), folder.join("absolute")).unwrap();
        symlink("../y", folder.join("outside")).unwrap();
        symlink("a", folder.join("relative")).unwrap();
        for (file, expected) in [
            ("absolute/x", Some("/www/absolute -> ")),
            (
                "outside",
                Some("/www/outside -> ../y is not followed, and its files get 404: it leads out"),
            ),
            ("relative/x", None),
            ("a/x", None),
        ] {
            let message = message(&folder, Path::new(file));
            assert_eq!(message.is_some(), expected.is_some(), "{file}: {message:?}");
            let message = message.unwrap_or_default();
            assert!(message.contains(expected.unwrap_or_default()), "{file}: {message}");
        }
    }
}
