//! Authentication by another server, which is asked about each request.

use std::sync::Arc;
use std::time::Duration;

use weft::header::{self, HeaderName, HeaderValue};
use weft::{Method, Request, Response};
use weft_upstream::RequestFields;
use weft_upstream::{ForwardedHost, ProxySettings, ReverseProxy};

use crate::base::auth_url::AuthUrl;
use crate::options::layer::OpenContext;

/// Asks an authentication server about requests, with a request of its own for each.
pub(in crate::options) struct ForwardAuth {
    proxy: ReverseProxy,
    target: Arc<str>,
    /// Fields of its responses that the upstream gets.
    copied: Arc<[HeaderName]>,
}

/// Time for the response of the server, unless the route has its own: a browser waits for it before
/// each page.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Fields that apply to the content of the request, not to the client. A condition on the resource
/// must not be evaluated for the answer of the server.
const NOT_ASKED: [HeaderName; 6] = [
    header::RANGE,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
];

impl ForwardAuth {
    /// Creates a client of the server.
    ///
    /// # Errors
    /// If the URL needs certificate authorities, and the system has none.
    pub(super) fn new(
        url: &AuthUrl,
        copied: &[HeaderName],
        timeout: Duration,
        context: &OpenContext<'_>,
    ) -> Result<ForwardAuth, String> {
        let settings = ProxySettings {
            upstreams: vec![url.upstream.clone().into()],
            host: ForwardedHost::Upstream,
            trusted: Some(context.trusted_proxies.to_vec()),
            connect_timeout: timeout.min(Duration::from_secs(5)),
            response_timeout: timeout,
            body_timeout: timeout,
            // A refusal is short. One without an end must not fill the disk.
            max_temp_file_bytes: 0,
            ..ProxySettings::default()
        };
        let proxy = ReverseProxy::with_settings(settings, context.buffer_space.clone())?;
        Ok(ForwardAuth { proxy, target: url.target.as_str().into(), copied: copied.into() })
    }

    /// Returns the same for another worker, with connections of its own.
    pub(in crate::options) fn for_worker(&self) -> ForwardAuth {
        let ForwardAuth { proxy, target, copied } = self;
        ForwardAuth { proxy: proxy.clone(), target: target.clone(), copied: copied.clone() }
    }

    /// Asks about a request. If the server agrees, with a status of 2xx, the request gets the
    /// copied fields of its response. Returns the cookies of that response, which are for the
    /// client.
    ///
    /// # Errors
    /// The response for the client: the response of the server, or 502, 503 or 504 without one.
    pub(in crate::options) async fn authenticate(
        &self,
        request: &mut Request,
    ) -> Result<Vec<HeaderValue>, Response> {
        // Boxed: the future is large, and all routes with options would have room for it.
        let response = Box::pin(self.proxy.ask(self.question(request))).await;
        if !response.status().is_success() {
            return Err(response);
        }
        for name in &*self.copied {
            match response.header(name.as_str()) {
                Some(value) => RequestFields::set(request, name.clone(), value.clone()),
                None => RequestFields::remove(request, name.clone()),
            }
        }
        Ok(response.header_values("set-cookie").cloned().collect())
    }

    /// Removes the fields that only the server may set.
    pub(in crate::options) fn remove_fields(&self, request: &mut Request) {
        self.copied.iter().for_each(|name| RequestFields::remove(request, name.clone()));
    }

    fn question(&self, request: &Request) -> Request {
        let uri = HeaderValue::from_str(&match request.query() {
            Some(query) => format!("{}?{query}", request.path()),
            None => request.path().to_owned(),
        });
        let mut question = request.without_body();
        question.set_method(Method::GET);
        question.set_path_and_query(&*self.target);
        for name in NOT_ASKED {
            RequestFields::remove(&mut question, name);
        }
        let method = HeaderValue::from_str(request.method().as_str());
        for (name, value) in [("x-forwarded-method", method), ("x-forwarded-uri", uri)] {
            let name = HeaderName::from_static(name);
            match value {
                Ok(value) => RequestFields::set(&mut question, name, value),
                Err(_) => RequestFields::remove(&mut question, name),
            }
        }
        question
    }
}
