//! Values that all requests of a proxy need.

use std::ffi::OsString;
use std::sync::Arc;

use weft::Request;
use weft::client_limit::{Client, ClientLimit, ClientLimitSettings};

use crate::balance::sticky::StickyCookie;
use crate::base::invalid_settings::InvalidSettings;
use crate::base::throttled_warning::ThrottledWarning;
use crate::head::hops::Via;
use crate::script::ScriptVariable;
use crate::settings::proxy_settings::ProxySettings;
use crate::spool::{BufferSpace, SpoolLimits};
use crate::url::http_version::HttpVersion;

/// Values that all requests of a proxy need. The workers share them.
pub(crate) struct ProxyContext {
    pub(crate) settings: Arc<ProxySettings>,
    pub(crate) via: Option<Via>,
    pub(crate) sticky: Option<StickyCookie>,
    pub(crate) buffer_space: Arc<BufferSpace>,
    /// Configured variables for scripts.
    pub(crate) environment: Vec<(String, OsString)>,
    /// Limit on the requests that wait until an upstream is available.
    pub(crate) held_requests: ClientLimit,
    /// Logged if no upstream is available for a request.
    pub(crate) no_upstream_warning: ThrottledWarning,
}

/// The context of the requests of one worker.
pub(crate) struct WorkerContext {
    pub(crate) shared: Arc<ProxyContext>,
    /// Limits of buffered bodies. Each worker has its own, so that their reference counts are not
    /// shared.
    pub(crate) request_limits: Arc<SpoolLimits>,
    pub(crate) response_limits: Arc<SpoolLimits>,
}

impl ProxyContext {
    /// # Errors
    /// If the secret of the session cookie cannot be read.
    pub(crate) fn new(
        settings: Arc<ProxySettings>,
        buffer_space: Arc<BufferSpace>,
    ) -> Result<ProxyContext, InvalidSettings> {
        Ok(ProxyContext {
            via: Via::new(&settings.via),
            sticky: StickyCookie::new(&settings.sticky)?,
            environment: ScriptVariable::resolve(&settings.fastcgi.environment),
            held_requests: ClientLimit::new(ClientLimitSettings::new(settings.max_queued)),
            no_upstream_warning: ThrottledWarning::default(),
            settings,
            buffer_space,
        })
    }

    pub(crate) fn has_http2_upstream(&self) -> bool {
        let mut urls = self.settings.urls();
        urls.any(|url| self.settings.http_version_of(url) != HttpVersion::Http1)
    }

    /// Returns the client that a connection and buffered bodies are counted for. `None`: the client
    /// has no limit of its own, because it is a trusted proxy or has no address.
    pub(crate) fn limited_client(&self, request: &Request) -> Option<Client> {
        Client::of_request(request, self.settings.trusted())
    }
}

impl WorkerContext {
    pub(crate) fn new(shared: Arc<ProxyContext>) -> WorkerContext {
        let limits = |memory_bytes| {
            let max_file_bytes = shared.settings.max_temp_file_bytes;
            let space = shared.buffer_space.clone();
            Arc::new(SpoolLimits { memory_bytes, max_file_bytes, space })
        };
        WorkerContext {
            request_limits: limits(shared.settings.request_buffer_bytes),
            response_limits: limits(shared.settings.response_buffer_bytes),
            shared,
        }
    }
}
