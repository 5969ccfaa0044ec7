//! Detection of changes to the files of the configuration, in a thread of its own: a file system
//! may block for long.
//!
//! All files are read again once a second and compared with their former texts. So a change is
//! found however it was made: in place, by a rename, by the symbolic links of a ConfigMap, and by a
//! new file that a pattern of `include` matches.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tokio::sync::mpsc;
use weft_config::Sources;

/// Interval at which the files are read. A change is reported when two reads in a row have the same
/// texts, so that a file is not used while it is written.
const INTERVAL: Duration = Duration::from_secs(1);

/// Sends the changed texts to the thread that controls the process.
pub(super) type TextSender = mpsc::Sender<Sources>;

/// A thread that watches the files. It ends after this value is dropped.
pub(super) struct ConfigWatch {
    _stop: Sender<()>,
}

impl ConfigWatch {
    /// Watches the files of the configuration `path`, which `current` has the texts of.
    pub(super) fn start(
        path: &Path,
        current: Sources,
        changes: TextSender,
    ) -> io::Result<ConfigWatch> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("weft-watch".to_owned());
        let mut files = WatchedTexts::new(path, current);
        thread.spawn(move || files.watch(&stopped, &changes))?;
        Ok(ConfigWatch { _stop: stop })
    }
}

struct WatchedTexts {
    path: PathBuf,
    /// Texts that were reported, or with which the watch began. Broken files are thus reported
    /// once.
    reported: Sources,
    /// Texts of the last read.
    last: Option<Sources>,
}

impl WatchedTexts {
    fn new(path: &Path, current: Sources) -> WatchedTexts {
        WatchedTexts { path: path.to_owned(), reported: current, last: None }
    }

    fn watch(&mut self, stopped: &Receiver<()>, changes: &TextSender) {
        while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            if let Some(changed) = self.read()
                && changes.blocking_send(changed).is_err()
            {
                return;
            }
        }
    }

    /// Reads the files. Returns their texts if they have changed, and are the same as at the last
    /// read.
    fn read(&mut self) -> Option<Sources> {
        let read = Sources::read(&self.path);
        match self.last.take_if(|last| last.is_same(&read)) {
            Some(same) if !same.is_same(&self.reported) => {
                self.reported = read;
                Some(same)
            }
            _ => {
                self.last = Some(read);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_change_once_and_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.toml");
        std::fs::write(&path, "a").unwrap();
        let mut files = WatchedTexts::new(&path, Sources::read(&path));
        // Each text is the file at one read.
        for (text, is_reported) in [
            ("a", false),
            ("b", false),
            ("b", true),
            ("b", false),
            // Another text at each read: it is being written.
            ("c", false),
            ("cc", false),
            ("ccc", false),
            ("ccc", true),
            // Back to the former text before it was reported.
            ("d", false),
            ("ccc", false),
            ("ccc", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(files.read().is_some(), is_reported, "{text}");
        }
    }
}
