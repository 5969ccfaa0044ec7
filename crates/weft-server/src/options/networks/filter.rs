//! Networks of clients that a route or a stream serves or refuses, from the configuration and from
//! files.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use weft::net::IpNetwork;
use weft::{Application, Middleware, Request, Response, StatusCode};

use crate::base::network_set::NetworkSet;
use crate::base::watched_file::WatchedFile;

/// Refuses clients by their address; requests get 403. A denied network is refused even inside
/// an allowed one. Without allowed networks, each address is allowed that is not denied.
#[derive(Clone)]
pub(crate) struct NetworkFilter {
    allowed: Networks,
    denied: Networks,
}

/// Networks of the configuration and of a file.
#[derive(Clone)]
struct Networks {
    listed: Arc<[IpNetwork]>,
    file: Option<Arc<WatchedFile<NetworkSet>>>,
}

/// The networks of a configuration.
pub(crate) struct NetworkRules<'a> {
    pub(crate) allow: &'a [IpNetwork],
    pub(crate) allow_file: Option<&'a Path>,
    pub(crate) deny: &'a [IpNetwork],
    pub(crate) deny_file: Option<&'a Path>,
}

/// Maximum size of a file: about 60,000 networks.
const MAX_FILE_BYTES: u64 = 1 << 20;

impl NetworkFilter {
    /// Creates a filter; `None` if the rules have no networks.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn new(rules: NetworkRules<'_>) -> Result<Option<NetworkFilter>, String> {
        let allowed = Networks::open(rules.allow, rules.allow_file)?;
        let denied = Networks::open(rules.deny, rules.deny_file)?;
        let has_any = !allowed.is_unset() || !denied.is_unset();
        Ok(has_any.then_some(NetworkFilter { allowed, denied }))
    }

    /// Returns true if a client with this address is allowed; `None` is a client on a Unix socket.
    pub(crate) fn allows(&self, address: Option<IpAddr>) -> bool {
        let is_in = |networks: &Networks| address.is_some_and(|address| networks.contains(address));
        !is_in(&self.denied) && (self.allowed.is_unset() || is_in(&self.allowed))
    }
}

impl Networks {
    fn open(listed: &[IpNetwork], file: Option<&Path>) -> Result<Networks, String> {
        let open = |path| WatchedFile::open(path, MAX_FILE_BYTES, NetworkSet::parse).map(Arc::new);
        let file = file.map(open).transpose()?;
        Ok(Networks { listed: listed.into(), file })
    }

    /// Returns true if nothing is configured. A file without networks is: as `allow_file` it
    /// allows nobody.
    fn is_unset(&self) -> bool {
        self.listed.is_empty() && self.file.is_none()
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.listed.iter().any(|network| network.contains(address))
            || self.file.as_ref().is_some_and(|file| file.current().contains(address))
    }
}

impl Middleware for NetworkFilter {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match self.allows(request.peer().address().map(|address| address.ip())) {
            true => next.call(request).await,
            false => StatusCode::FORBIDDEN.into(),
        }
    }
}
