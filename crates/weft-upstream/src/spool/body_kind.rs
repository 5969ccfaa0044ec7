//! The kind of a buffered body.

/// The kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// Written as its client sends it.
    Request,
    /// Written without a cost for its client. Therefore the client has a limit on unread bytes.
    Response,
}
