//! Requests that a test has prepared.

use crate::message::request::Request;

impl Request {
    /// Returns this request as one of the exchange of `received`, so that its interim responses are
    /// sent and its record has the values of middleware.
    pub(crate) fn in_exchange_of(self, received: Request) -> Request {
        let connection = received.connection.with_client_of(&self.connection);
        Request { connection, ..self }
    }
}
