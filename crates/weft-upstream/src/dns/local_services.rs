//! Services whose servers the process itself knows, without the DNS.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

use super::message::SrvRecord;
use crate::base::sync::{Arc, Mutex, PoisonError};

/// Services that the process itself sets, such as those of a cluster. Their names end with a
/// domain, and are not looked up in the DNS: `srv+http://80.app.kubernetes` with the domain
/// `kubernetes`.
///
/// Clones share their services. A change takes effect for the next request, keeps the connections
/// to servers that stay, and needs no other configuration.
#[derive(Clone, Default)]
pub struct LocalServices(Option<Arc<Inner>>);

struct Inner {
    /// With a dot in front.
    suffix: String,
    services: Mutex<HashMap<String, Arc<[SrvRecord]>>>,
}

/// A server of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalServer {
    /// Address of the server.
    pub address: SocketAddr,
    /// Share of the requests in relation to the other servers.
    pub weight: u16,
}

impl LocalServices {
    /// Creates an empty collection for names in a domain.
    pub fn new(domain: &str) -> LocalServices {
        let suffix = format!(".{domain}");
        LocalServices(Some(Arc::new(Inner { suffix, services: Mutex::default() })))
    }

    /// Sets the servers of a service.
    pub fn set(&self, name: &str, servers: &[LocalServer]) {
        let Some(inner) = &self.0 else { return };
        let record = |server: &LocalServer| SrvRecord {
            priority: 0,
            weight: server.weight,
            port: server.address.port(),
            target: match server.address {
                SocketAddr::V4(address) => address.ip().to_string(),
                SocketAddr::V6(address) => format!("[{}]", address.ip()),
            },
        };
        let records: Arc<[SrvRecord]> = servers.iter().map(record).collect();
        let mut services = inner.services.lock().unwrap_or_else(PoisonError::into_inner);
        if services.get(name) != Some(&records) {
            services.insert(name.to_owned(), records);
        }
    }

    /// Removes the services for whose names `is_kept` returns false.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        if let Some(inner) = &self.0 {
            let mut services = inner.services.lock().unwrap_or_else(PoisonError::into_inner);
            services.retain(|name, _| is_kept(name));
        }
    }

    /// Returns the servers of a service. A service of the domain without servers has an empty list;
    /// `None`: the name is of another domain.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<[SrvRecord]>> {
        let inner = self.0.as_ref().filter(|inner| name.ends_with(&inner.suffix))?;
        let services = inner.services.lock().unwrap_or_else(PoisonError::into_inner);
        Some(services.get(name).cloned().unwrap_or_default())
    }
}

/// True for clones of the same collection.
impl PartialEq for LocalServices {
    fn eq(&self, other: &LocalServices) -> bool {
        self.address() == other.address()
    }
}

impl Eq for LocalServices {}

impl Hash for LocalServices {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl LocalServices {
    fn address(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| Arc::as_ptr(inner).addr())
    }
}

/// Shows the domain only.
impl fmt::Debug for LocalServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalServices").field(&self.0.as_ref().map(|it| &it.suffix)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_services_of_its_domain_only() {
        let services = LocalServices::new("kubernetes");
        let server = LocalServer { address: "10.0.0.1:8080".parse().unwrap(), weight: 3 };
        let other = LocalServer { address: "[2001:db8::1]:80".parse().unwrap(), weight: 1 };
        services.set("80.app.kubernetes", &[server, other]);
        let shown = |name: &str| {
            let found = services.find(name)?;
            let shown = found.iter().map(|it| format!("{}:{}={}", it.target, it.port, it.weight));
            Some(shown.collect::<Vec<_>>())
        };
        let expected = vec!["10.0.0.1:8080=3".to_owned(), "[2001:db8::1]:80=1".to_owned()];
        for (name, expected) in [
            ("80.app.kubernetes", Some(expected)),
            ("80.none.kubernetes", Some(Vec::new())),
            ("80.app.example.org", None),
            ("kubernetes", None),
        ] {
            assert_eq!(shown(name), expected, "{name}");
        }
        let same = services.find("80.app.kubernetes").unwrap();
        services.set("80.app.kubernetes", &[server, other]);
        assert!(Arc::ptr_eq(&same, &services.find("80.app.kubernetes").unwrap()));
        services.retain(|_| false);
        assert_eq!(shown("80.app.kubernetes"), Some(Vec::new()));
        assert!(LocalServices::default().find("80.app.kubernetes").is_none());
    }
}
