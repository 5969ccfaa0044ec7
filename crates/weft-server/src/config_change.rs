//! Changes of the configuration by clients of the status endpoint, from the endpoint to the thread
//! that controls the process.
//!
//! The files are not written: a change is in effect until the next reload, start or upgrade. So the
//! process needs no permission to write its configuration, and nobody becomes the user who starts
//! it by a change.

use tokio::sync::{mpsc, oneshot};

use crate::config::{Problem, Sources};

/// Connections on which changes are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConfigChanges {
    #[default]
    Never,
    /// Unix sockets, whose permissions decide who may change the configuration.
    Unix,
    /// Also connections from the loopback address, and so every user of the machine.
    Loopback,
}

/// Change of the configuration that a client requests.
pub(crate) enum ConfigChange {
    /// Use the configuration with this text.
    Replace(String),
    /// Use the configuration before the last replacement.
    Undo,
}

/// Why a change did not take effect.
#[derive(Debug)]
pub(crate) enum ChangeError {
    /// The configuration has these errors.
    Invalid(Vec<Problem>),
    /// The state of the process does not permit it.
    Conflict(&'static str),
}

/// The configuration in effect, and the one before the last replacement.
pub(crate) struct ConfigHistory {
    current: Version,
    former: Option<Version>,
}

/// The texts of a configuration.
struct Version {
    sources: Sources,
    is_set_by_client: bool,
}

impl ConfigHistory {
    pub(crate) fn new(files: Sources) -> ConfigHistory {
        let current = Version { sources: files, is_set_by_client: false };
        ConfigHistory { current, former: None }
    }

    /// Returns true if the configuration in effect is not that of the files.
    pub(crate) fn is_set_by_client(&self) -> bool {
        self.current.is_set_by_client
    }

    pub(crate) fn replace(&mut self, sources: Sources) {
        let current = Version { sources, is_set_by_client: true };
        self.former = Some(std::mem::replace(&mut self.current, current));
    }

    /// Returns the former configuration.
    pub(crate) fn former(&self) -> Option<&Sources> {
        self.former.as_ref().map(|version| &version.sources)
    }

    pub(crate) fn undo(&mut self) {
        if let Some(former) = self.former.take() {
            self.current = former;
        }
    }
}

/// A change, and the channel of its result, which has the warnings about the new configuration.
pub(crate) struct ChangeRequest {
    pub(crate) change: ConfigChange,
    pub(crate) reply: oneshot::Sender<Result<Vec<Problem>, ChangeError>>,
}

pub(crate) type ChangeSender = mpsc::Sender<ChangeRequest>;
pub(crate) type ChangeReceiver = mpsc::Receiver<ChangeRequest>;

/// Creates the channel. Changes are made one after the other, so that it needs no queue.
pub(crate) fn channel() -> (ChangeSender, ChangeReceiver) {
    mpsc::channel(1)
}
