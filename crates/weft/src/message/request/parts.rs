//! Requests as parts, for their conversion from and to requests of `http`.

use std::sync::Arc;

use bytes::Bytes;
use http::Extensions;
use tokio::sync::watch;

use crate::message::body::Body;
use crate::message::request::{Connection, Request, RequestHead, Shared};
use crate::peer::Peer;

impl Request {
    /// Assembles a request of its parts. Without a connection it has no peer, and no server that
    /// could shut down.
    pub(crate) fn from_components(
        (head, body): (RequestHead, Body),
        connection: Option<Connection>,
        extensions: Extensions,
    ) -> Request {
        let nobody = || {
            let shared = Shared::new(Peer::default(), Arc::new(watch::channel(None).1));
            Connection { shared, exchange: 0, peer: None, is_secure: None }
        };
        Request { head, body, connection: connection.unwrap_or_else(nobody), extensions }
    }

    /// The connection of a request.
    #[cfg_attr(
        not(feature = "axum"),
        expect(dead_code, reason = "only axum's applications use it")
    )]
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns all parts of a request, for its conversion into another form.
    pub(crate) fn into_components(self) -> (RequestHead, Body, Connection, Extensions) {
        let Request { head, body, connection, extensions } = self;
        (head, body, connection, extensions)
    }
}

impl RequestHead {
    /// Returns the request target as a slice of the head's bytes.
    pub(crate) fn shared_target(&self) -> Bytes {
        let text = self.0.headers.text();
        text.slice_ref(self.0.target.of(text))
    }

    /// Returns the authority as a slice of the head's bytes.
    pub(crate) fn shared_authority(&self) -> Option<Bytes> {
        Some(self.0.headers.text().slice_ref(self.authority()?.as_bytes()))
    }

    /// Returns path and query, if middleware has changed them.
    pub(crate) fn rewritten(&self) -> Option<&str> {
        (self.0.rewritten.is_some() || self.0.mount > 0).then(|| self.path_and_query())
    }
}
