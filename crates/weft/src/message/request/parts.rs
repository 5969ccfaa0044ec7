//! Requests as parts, for their conversion from and to requests of `http`.

use http::Extensions;

use crate::message::body::Body;
use crate::message::connection::Connection;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;

impl Request {
    /// Assembles a request of its parts. Without a connection it has no peer, and no server that
    /// could shut down.
    pub(crate) fn from_components(
        (head, body): (RequestHead, Body),
        connection: Option<Connection>,
        extensions: Extensions,
    ) -> Request {
        let connection = connection.unwrap_or_else(Connection::detached);
        Request { head, body, connection, extensions }
    }

    /// Returns all parts of a request, for its conversion into another form.
    pub(crate) fn into_components(self) -> (RequestHead, Body, Connection, Extensions) {
        let Request { head, body, connection, extensions } = self;
        (head, body, connection, extensions)
    }
}
