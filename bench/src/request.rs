//! The request of a workload.

/// The request of a workload.
#[derive(Clone, Copy)]
pub struct RequestSpec {
    pub scheme: Scheme,
    pub path: &'static str,
    pub fields: &'static [(&'static str, &'static str)],
    /// Requests differ in query, referrer and cookie, as the requests of browsers do.
    pub varies: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Scheme {
    Http,
    Https,
    /// HTTP/2 by prior knowledge.
    H2c,
}

pub const fn http(path: &'static str) -> RequestSpec {
    RequestSpec { scheme: Scheme::Http, path, fields: &[], varies: false }
}

impl RequestSpec {
    pub fn url(&self, port: &str) -> String {
        let scheme = if self.scheme == Scheme::Https { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{port}{}", self.path)
    }
}
