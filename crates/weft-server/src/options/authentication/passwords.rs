//! Authentication by name and password (HTTP Basic, RFC 7617).

use std::path::Path;
use std::sync::Arc;

use weft::header::HeaderValue;
use weft::middleware::{User, basic_credentials};
use weft::net::IpNetwork;
use weft::{Request, Response};

use crate::base::password_file::PasswordFile;
use crate::base::verifications::{Busy, Requester};
use crate::options::unauthorized;

/// Verifies the passwords of requests against a file.
#[derive(Clone)]
pub(super) struct Passwords {
    challenge: HeaderValue,
    users: Arc<PasswordFile>,
    trusted_proxies: Arc<[IpNetwork]>,
}

impl Passwords {
    /// Opens a file of users. The realm is escaped as in a quoted string.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn open(
        file: &Path,
        realm: &str,
        trusted_proxies: &[IpNetwork],
    ) -> Result<Passwords, String> {
        let challenge =
            HeaderValue::from_str(&format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
        let challenge = challenge.map_err(|_| "a realm has no control characters".to_owned())?;
        let users = Arc::new(PasswordFile::open(file)?);
        Ok(Passwords { challenge, users, trusted_proxies: trusted_proxies.into() })
    }

    /// Returns the user whose password was right in a former request with the same credentials.
    pub(super) fn remembered(&self, request: &Request) -> Option<User> {
        self.users.remembered(credentials(request)?)
    }

    /// Returns the user of a request.
    ///
    /// # Errors
    /// The response for the client, if name and password are missing or wrong, or if too many
    /// others are being verified.
    pub(super) async fn authenticate(&self, request: &Request) -> Result<User, Response> {
        let refusal = || unauthorized(&self.challenge);
        let field = credentials(request).ok_or_else(refusal)?;
        if let Some(user) = self.users.remembered(field) {
            return Ok(user);
        }
        let (name, password) = basic_credentials(request).ok_or_else(refusal)?;
        let requester = Requester::of_request(request, &self.trusted_proxies);
        let user = self.users.verify(&name, &password, field, requester).await;
        user.map_err(Busy::response)?.ok_or_else(refusal)
    }
}

/// Returns the `Authorization` of a request. Of several, an application might read another one.
fn credentials(request: &Request) -> Option<&[u8]> {
    let mut fields = request.headers().get_all("authorization");
    let field = fields.next();
    field.filter(|_| fields.next().is_none())
}
