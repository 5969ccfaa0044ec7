//! Changes of the configuration and of upstreams by clients of the status endpoint, from the
//! endpoint to the thread that controls the process.
//!
//! The files are not written: a change of the configuration is in effect until the next reload,
//! start or upgrade. So the process needs no permission to write its configuration, and a client
//! does not become the user who starts it.

use tokio::sync::{mpsc, oneshot};
use weft_config::{Problem, Sources};
use weft_upstream::ControlChange;

use crate::route::RouteName;

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

    /// Returns true if a client has set the configuration in effect, which thus differs from the
    /// files.
    pub(crate) fn is_set_by_client(&self) -> bool {
        self.current.is_set_by_client
    }

    /// Returns the configuration in effect.
    pub(crate) fn current(&self) -> &Sources {
        &self.current.sources
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

/// Change of an upstream that a client requests.
pub(crate) struct UpstreamChange {
    /// Text of its URL.
    pub(crate) upstream: String,
    /// Restricts the change to the upstreams of some routes.
    pub(crate) host: Option<String>,
    pub(crate) prefix: Option<String>,
    pub(crate) kind: UpstreamChangeKind,
}

/// Kind of a change of an upstream.
pub(crate) enum UpstreamChangeKind {
    /// Another state or weight.
    Control(ControlChange),
    Add,
    Remove,
}

impl UpstreamChange {
    /// Returns true if the change applies to the upstreams of a route.
    pub(crate) fn applies_to(&self, route: &RouteName) -> bool {
        let is = |wanted: &Option<String>, name: &String| {
            wanted.as_ref().is_none_or(|wanted| wanted == name)
        };
        is(&self.host, &route.host) && is(&self.prefix, &route.prefix)
    }
}

/// A change, and the channel of its result.
pub(crate) enum ChangeRequest {
    /// The result has the warnings about the new configuration.
    Config { change: ConfigChange, reply: oneshot::Sender<Result<Vec<Problem>, ChangeError>> },
    /// Use the text that the process has made itself. The result is true if it is in effect.
    #[cfg_attr(not(feature = "kubernetes"), expect(dead_code, reason = "a cluster requests it"))]
    Generated { reply: oneshot::Sender<bool> },
    /// The result is the number of upstreams that were changed, or the reason of a refusal.
    Upstream { change: UpstreamChange, reply: oneshot::Sender<Result<usize, String>> },
}

pub(crate) type ChangeSender = mpsc::Sender<ChangeRequest>;
pub(crate) type ChangeReceiver = mpsc::Receiver<ChangeRequest>;

/// Creates the channel. Changes are made one after the other, so that it needs no queue.
pub(crate) fn channel() -> (ChangeSender, ChangeReceiver) {
    mpsc::channel(1)
}
