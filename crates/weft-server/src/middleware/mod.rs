//! Middleware of a route, made of its options.

pub(crate) mod access; // access to a route: addresses and authentication
mod accel; // files that upstreams and scripts name
mod bandwidth; // limit of the bandwidth of each response
mod client_certificate; // requirement of a client certificate
pub(crate) mod error_pages; // error pages of a route, from files
mod field_changes; // changes of a route to fields
mod maintenance; // a file that closes the route
mod rate; // rate limit by other keys than the client
mod request_id; // request IDs for upstreams and scripts
mod substitution; // substitution of texts in bodies
mod tracing; // distributed traces

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, LocalBoxFuture, ready};
use weft::middleware::{
    BodyLimit, BodyRate, Canonical, Compress, ConcurrencyLimit, Cors, ErrorPages, RateLimit,
    RequestIds, SecurityHeaders, Timeout,
};
use weft::{Application, Bandwidth, HeaderName, Method, Middleware, Request, Response, header};

use self::accel::AccelFiles;
use self::access::{AccessContext, Authentication, NetworkFilter};
use self::bandwidth::LimitBandwidth;
use self::client_certificate::RequireClientCertificate;
use self::error_pages::error_pages;
use self::field_changes::{RequestFieldChanges, ResponseFieldChanges};
use self::maintenance::Maintenance;
use self::rate::RateByKey;
use self::request_id::ForwardRequestId;
use self::substitution::Substitution;
use self::tracing::Tracing;
use crate::base::rate::Rate;
use crate::config::{Origin, RouteOptions};
use crate::route::Share;

/// The middleware of a route, shared by all workers with its state, such as the rates of the
/// clients.
///
/// A request passes through it in this order, regardless of the order in the file: request ID, trace, response
/// fields (so that they are on every response), bandwidth, error pages, canonical host and HTTPS,
/// maintenance, networks, client certificate, rate, number of concurrent requests, time, CORS (whose preflight requests carry no
/// credentials), authentication, size and rate of the body, fields of the request, compression, substitution, files that the application names.
pub(crate) struct RouteMiddleware {
    request_ids: Option<RequestIds>,
    forward_request_id: Option<ForwardRequestId>,
    /// Share of the traces that begin here which is sampled.
    tracing: Option<Share>,
    default_fields: Option<SecurityHeaders>,
    fields: Option<ResponseFieldChanges>,
    bandwidth: Option<LimitBandwidth>,
    error_pages: Option<ErrorPages>,
    canonical: Option<Canonical>,
    maintenance: Option<Maintenance>,
    networks: Option<NetworkFilter>,
    client_certificate: Option<RequireClientCertificate>,
    rate: Option<RateLimit>,
    rate_by_key: Option<RateByKey>,
    concurrency: Option<ConcurrencyLimit>,
    timeout: Option<Timeout>,
    cors: Option<Cors>,
    authentication: Option<Authentication>,
    body: Option<BodyLimit>,
    body_rate: Option<BodyRate>,
    request_fields: Option<RequestFieldChanges>,
    compress: Option<Compress>,
    substitution: Option<Substitution>,
    accel: Option<AccelFiles>,
}

/// An application with the middleware of its route.
#[derive(Clone)]
pub(crate) struct WrappedApp(Rc<dyn Fn(Request) -> LocalBoxFuture<'static, Response>>);

/// Middleware that passes most requests on without waiting, and so needs no future for them. Each
/// worker has its own.
pub(crate) trait Layer: Sized + 'static {
    /// Handles a request.
    fn respond(
        self: &Rc<Self>,
        request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response>;
}

impl WrappedApp {
    pub(crate) fn new(
        respond: impl Fn(Request) -> LocalBoxFuture<'static, Response> + 'static,
    ) -> WrappedApp {
        WrappedApp(Rc::new(respond))
    }

    /// Handles a request. The future borrows nothing, so that a reload may replace the router.
    pub(crate) fn respond(&self, request: Request) -> LocalBoxFuture<'static, Response> {
        (self.0)(request)
    }

    /// Wraps this application, unless the route does not use the middleware.
    fn with_some(self, middleware: Option<impl Middleware + 'static>) -> WrappedApp {
        match middleware {
            Some(middleware) => {
                let app = Rc::new(self.with(middleware));
                WrappedApp::new(move |request| {
                    let app = app.clone();
                    async move { app.call(request).await }.boxed_local()
                })
            }
            None => self,
        }
    }

    /// Wraps this application with a layer, unless the route does not use it.
    fn with_layer(self, layer: Option<impl Layer>) -> WrappedApp {
        match layer.map(Rc::new) {
            Some(layer) => WrappedApp::new(move |request| layer.respond(request, &self)),
            None => self,
        }
    }
}

impl Layer for BodyLimit {
    fn respond(
        self: &Rc<Self>,
        mut request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response> {
        match self.apply(&mut request) {
            Ok(()) => next.respond(request),
            Err(error) => ready(error.into()).boxed_local(),
        }
    }
}

impl Application for WrappedApp {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.respond(request)
    }
}

impl RouteMiddleware {
    /// Creates the middleware of a route; `None` if its options need none.
    ///
    /// # Errors
    /// If a file of the options cannot be read.
    pub(crate) fn new(
        options: &RouteOptions,
        context: &AccessContext<'_>,
    ) -> Result<Option<RouteMiddleware>, String> {
        if *options == RouteOptions::default() {
            return Ok(None);
        }
        let authentication = Authentication::new(options, context)?;
        let includes_addresses =
            authentication.as_ref().is_some_and(Authentication::includes_addresses);
        let rate = options.rate.as_ref().and_then(|rate| rate.value());
        let rate = rate.map(|rate| rate_limit(rate, options.burst));
        let (rate, rate_by_key) = match (rate, &options.rate_key) {
            (Some(limit), Some(key)) => {
                (None, Some(RateByKey { limit, key: Arc::new(key.clone()) }))
            }
            (rate, _) => (rate, None),
        };
        let networks = NetworkFilter::of_route(options)?;
        let request_id = options.request_id.as_ref().and_then(|name| name.value());
        let limit = options.max_concurrent_requests.filter(|limit| *limit > 0);
        Ok(Some(RouteMiddleware {
            request_ids: request_id.map(|name| {
                RequestIds::new().header(name.clone()).trust(context.trusted_proxies.to_vec())
            }),
            forward_request_id: request_id.cloned().map(ForwardRequestId),
            tracing: options.tracing.as_ref().and_then(|share| share.value()).copied(),
            fields: ResponseFieldChanges::new(&options.response_fields),
            default_fields: security_headers(options),
            bandwidth: bandwidth(options),
            error_pages: error_pages(options),
            canonical: canonical(options),
            maintenance: options
                .maintenance
                .as_ref()
                .and_then(|path| path.value())
                .map(|path| Maintenance::new(path)),
            networks: networks.filter(|_| !includes_addresses),
            client_certificate: options
                .client_cert_required
                .unwrap_or(false)
                .then_some(RequireClientCertificate),
            rate,
            rate_by_key,
            concurrency: limit.map(|limit| ConcurrencyLimit::new(limit as usize)),
            timeout: options.request_timeout.filter(|time| *time < Duration::MAX).map(Timeout::new),
            cors: cors(options)?,
            authentication,
            body: options.max_body_bytes.map(BodyLimit::new),
            body_rate: options
                .min_bytes_per_second
                .zip(options.stall_timeout)
                .map(|(rate, stall_timeout)| BodyRate::new(rate, stall_timeout)),
            request_fields: RequestFieldChanges::new(&options.request_fields),
            compress: options.compress.unwrap_or(false).then(|| compress(options)),
            substitution: Substitution::new(options)?,
            accel: accel(options)?,
        }))
    }

    /// Returns true if preflight requests are answered.
    pub(crate) fn has_cors(&self) -> bool {
        self.cors.is_some()
    }

    /// Wraps the application of a worker.
    pub(crate) fn wrap(&self, app: WrappedApp) -> WrappedApp {
        // The outermost layer is added last. With one type for all layers, the future of each request
        // would contain a copy of the request for every layer that the route does not use.
        app.with_layer(self.accel.as_ref().map(AccelFiles::for_worker))
            .with_some(self.substitution.clone())
            .with_some(self.compress.clone())
            .with_layer(self.request_fields.as_ref().map(RequestFieldChanges::for_worker))
            .with_layer(self.body.clone())
            .with_some(self.body_rate.clone())
            .with_layer(self.authentication.as_ref().map(Authentication::for_worker))
            .with_some(self.cors.clone())
            .with_some(self.timeout.clone())
            .with_some(self.concurrency.clone())
            .with_some(self.rate_by_key.clone())
            .with_some(self.rate.clone())
            .with_some(self.client_certificate.clone())
            .with_some(self.networks.clone())
            .with_some(self.maintenance.clone())
            .with_some(self.canonical.clone())
            .with_some(self.error_pages.clone())
            .with_some(self.bandwidth.clone())
            .with_layer(self.fields.as_ref().map(ResponseFieldChanges::for_worker))
            .with_some(self.default_fields.clone())
            .with_layer(self.tracing.map(Tracing::new))
            .with_some(self.forward_request_id.clone())
            .with_some(self.request_ids.clone())
    }
}

fn security_headers(options: &RouteOptions) -> Option<SecurityHeaders> {
    const DEFAULTS: [HeaderName; 3] =
        [header::X_CONTENT_TYPE_OPTIONS, header::REFERRER_POLICY, header::X_FRAME_OPTIONS];
    let max_age = options.hsts.map(|time| time.as_secs()).filter(|seconds| *seconds > 0);
    let has_defaults = options.security_headers.unwrap_or(false);
    if !has_defaults && max_age.is_none() {
        return None;
    }
    let mut headers = SecurityHeaders::new();
    if !has_defaults {
        headers = DEFAULTS.into_iter().fold(headers, SecurityHeaders::without);
    }
    // A field that is removed explicitly is not added again.
    let removed = options.response_fields.remove.iter().cloned();
    headers = removed.fold(headers, SecurityHeaders::without);
    Some(max_age.into_iter().fold(headers, SecurityHeaders::hsts))
}

fn canonical(options: &RouteOptions) -> Option<Canonical> {
    let redirects_to_https = options.https_redirect.unwrap_or(false);
    if !redirects_to_https && options.canonical_host.is_none() {
        return None;
    }
    let canonical = Canonical::new();
    let canonical = if redirects_to_https { canonical.https() } else { canonical };
    Some(options.canonical_host.iter().fold(canonical, |canonical, host| canonical.host(host)))
}

fn bandwidth(options: &RouteOptions) -> Option<LimitBandwidth> {
    let bandwidth = Bandwidth::new(NonZeroU64::new(options.bandwidth?)?);
    Some(LimitBandwidth(bandwidth.after(options.bandwidth_after.unwrap_or(0))))
}

fn compress(options: &RouteOptions) -> Compress {
    match options.gzip_level {
        Some(level) => Compress::new().gzip_level(level),
        None => Compress::new(),
    }
}

/// # Errors
/// If a folder cannot be opened.
fn accel(options: &RouteOptions) -> Result<Option<AccelFiles>, String> {
    let folders = options.accel.as_ref().filter(|folders| !folders.is_empty());
    folders.map(|folders| AccelFiles::open(folders)).transpose()
}

fn rate_limit(rate: &Rate, burst: Option<u32>) -> RateLimit {
    let limit = RateLimit::new(rate.requests.get(), rate.period);
    burst.into_iter().fold(limit, RateLimit::burst)
}

/// Allows the methods and fields of common APIs, without cookies, unless the options have others.
///
/// # Errors
/// If cookies are allowed for all origins, which browsers refuse.
fn cors(options: &RouteOptions) -> Result<Option<Cors>, String> {
    let Some(origins) = options.cors.as_ref().filter(|origins| !origins.is_empty()) else {
        return Ok(None);
    };
    let methods = options.cors_methods.clone();
    let methods = methods.unwrap_or_else(|| vec![Method::PUT, Method::PATCH, Method::DELETE]);
    let names = options.cors_headers.clone();
    let names = names.unwrap_or_else(|| vec![header::AUTHORIZATION, header::CONTENT_TYPE]);
    let mut cors = Cors::new().methods(methods).headers(names);
    if options.cors_credentials == Some(true) {
        if origins.contains(&Origin::Any) {
            return Err("`cors_credentials` cannot be combined with the origin * in `cors`: any \
                        site could read what its visitors may"
                .to_owned());
        }
        cors = cors.credentials();
    }
    if let Some(age) = options.cors_max_age {
        cors = cors.max_age(u32::try_from(age.as_secs()).unwrap_or(u32::MAX));
    }
    Ok(Some(origins.iter().fold(cors, |cors, origin| match origin {
        Origin::Any => cors.any_origin(),
        Origin::Only(origin) => cors.origin(origin),
    })))
}
