//! Requests to authorities, by the client of the proxy.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use weft_acme::{HttpClient, ResponseFuture};
use weft_upstream::{OwnRequest, RemoteServer};

/// Time for which the TLS configuration of a server is kept: the system's authorities may change.
const SERVER_TIME: Duration = Duration::from_secs(3_600);

/// Maximum number of servers that are kept. An authority has one or two.
const MAX_SERVERS: usize = 16;

/// Servers of authorities. All orders share them, because it takes long to read the certificate
/// authorities of the system.
pub(super) struct AuthorityServers {
    ca: Option<PathBuf>,
    known: Mutex<HashMap<String, KnownServer>>,
}

struct KnownServer {
    server: Arc<RemoteServer>,
    since: Instant,
}

impl AuthorityServers {
    pub(super) fn new(ca: Option<PathBuf>) -> AuthorityServers {
        AuthorityServers { ca, known: Mutex::default() }
    }

    /// Returns the server for a URL without a path.
    fn get(&self, url: &str, now: Instant) -> Result<Arc<RemoteServer>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, it| now.saturating_duration_since(it.since) < SERVER_TIME);
        if let Some(known) = known.get(url) {
            return Ok(known.server.clone());
        }
        if known.len() >= MAX_SERVERS {
            known.clear();
        }
        let server = Arc::new(RemoteServer::new(url.parse()?, self.ca.as_deref())?);
        known.insert(url.to_owned(), KnownServer { server: server.clone(), since: now });
        Ok(server)
    }
}

impl HttpClient for AuthorityServers {
    fn send(
        &self,
        request: Request<Bytes>,
        max_bytes: usize,
        time: Duration,
    ) -> ResponseFuture<'_> {
        Box::pin(async move {
            let (method, uri, body) = (request.method(), request.uri(), request.body());
            let scheme = uri.scheme_str().unwrap_or_default();
            let authority = uri.authority().map_or("", |authority| authority.as_str());
            let server = self.get(&format!("{scheme}://{authority}"), Instant::now())?;
            let fields =
                request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
            // The client adds this field itself.
            let fields: Vec<_> = fields.filter(|(name, _)| *name != "user-agent").collect();
            let target = uri.path_and_query().map_or("/", |target| target.as_str());
            let request = OwnRequest { method, target, host: None, fields: &fields, body };
            server.send(&request, max_bytes, time).await
        })
    }
}

impl fmt::Debug for AuthorityServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityServers").field("ca", &self.ca).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_shared_for_an_hour_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let certified = rcgen::generate_simple_self_signed(Vec::new()).unwrap();
        std::fs::write(&ca, certified.cert.pem()).unwrap();
        let servers = AuthorityServers::new(Some(ca.clone()));
        let (url, now) = ("https://a.example", Instant::now());
        let first = servers.get(url, now).unwrap();
        std::fs::remove_file(&ca).unwrap();
        assert!(Arc::ptr_eq(&first, &servers.get(url, now + SERVER_TIME / 2).unwrap()));
        assert!(servers.get(url, now + SERVER_TIME).is_err(), "the file is read again");
        std::fs::write(&ca, certified.cert.pem()).unwrap();
        for number in 0..3 * MAX_SERVERS {
            servers.get(&format!("https://n{number}.example"), now).unwrap();
        }
        assert!(servers.known.lock().unwrap().len() <= MAX_SERVERS);
    }
}
