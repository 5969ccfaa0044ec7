//! The requests that `weft reload`, `weft stop` and `weft upgrade` send to a running server.

/// A request to a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlRequest {
    /// Reload the configuration.
    Reload,
    /// Stop as after SIGTERM. The result is sent when the process ends.
    Stop,
    /// Start the program from its current file, and pass the sockets to it.
    Upgrade,
}

impl ControlRequest {
    const ALL: [ControlRequest; 3] =
        [ControlRequest::Reload, ControlRequest::Stop, ControlRequest::Upgrade];

    /// Returns the request with this name, which is also the name of its command.
    pub(crate) fn parse(name: &str) -> Option<ControlRequest> {
        ControlRequest::ALL.into_iter().find(|request| request.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ControlRequest::Reload => "reload",
            ControlRequest::Stop => "stop",
            ControlRequest::Upgrade => "upgrade",
        }
    }

    /// Returns the meaning of a failure for the server.
    pub(crate) fn failure(self) -> &'static str {
        match self {
            ControlRequest::Reload => {
                "the configuration was not reloaded; the previous one stays in effect"
            }
            ControlRequest::Stop => "the server continues to serve",
            ControlRequest::Upgrade => "the upgrade failed, and the process continues to serve",
        }
    }
}
