//! Permission of orders on demand by a resource (`on_demand_ask`).

use std::fmt;
use std::path::Path;
use std::time::Duration;

use weft::Method;
use weft_acme::{Name, OrderPermission, PermissionFuture};
use weft_upstream::{OwnRequest, RemoteServer};

use crate::base::auth_url::AuthUrl;

/// Maximum size of a response, in bytes. Only its status is used.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Resource that is asked about names. Its status is the permission.
pub(super) struct AskedPermission {
    url: AuthUrl,
    server: RemoteServer,
    timeout: Duration,
}

impl AskedPermission {
    /// # Errors
    /// If the URL is `https`, and the certificate authorities cannot be read.
    pub(super) fn new(
        url: AuthUrl,
        ca: Option<&Path>,
        timeout: Duration,
    ) -> Result<AskedPermission, String> {
        let server = RemoteServer::new(url.upstream.clone(), ca)?;
        Ok(AskedPermission { url, server, timeout })
    }

    async fn ask(&self, name: &Name) -> Result<bool, String> {
        let url = &self.url;
        let separator = if url.target.contains('?') { '&' } else { '?' };
        let target = format!("{}{separator}domain={name}", url.target);
        let (method, target) = (&Method::GET, &*target);
        let request = OwnRequest { method, target, host: None, fields: &[], body: b"" };
        let response = self.server.send(&request, MAX_RESPONSE_BYTES, self.timeout).await;
        let status = response.map_err(|reason| format!("cannot ask {url}: {reason}"))?.status();
        match status.is_server_error() {
            true => Err(format!("cannot ask {url}: the status is {status}")),
            false => Ok(status.is_success()),
        }
    }
}

impl OrderPermission for AskedPermission {
    fn is_permitted<'a>(&'a self, name: &'a Name) -> PermissionFuture<'a> {
        Box::pin(self.ask(name))
    }
}

impl fmt::Debug for AskedPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AskedPermission({})", self.url)
    }
}
