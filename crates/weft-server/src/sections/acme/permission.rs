//! The resource that is asked about names before they are ordered on demand (`on_demand_ask`).

use std::fmt;
use std::path::Path;
use std::time::Duration;

use weft::Method;
use weft_acme::{Name, OrderPermission, PermissionFuture};
use weft_upstream::{OwnRequest, RemoteServer};

use crate::base::auth_url::AuthUrl;

/// Maximum size of a response, whose status counts.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Permission by the status of a resource.
pub(super) struct AskedPermission {
    url: AuthUrl,
    server: RemoteServer,
    timeout: Duration,
}

impl AskedPermission {
    /// # Errors
    /// If the URL needs certificate authorities, and they cannot be read.
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
        let request = OwnRequest { method: &Method::GET, target: &target, fields: &[], body: b"" };
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
