//! Applications that a route can be served by.

pub(crate) mod cgi; // CGI scripts
mod client_certificate; // certificates of clients, for proxy and CGI
mod client_limit; // limit on connections and processes, with a share per client
mod gateway; // errors of proxy and CGI
pub(crate) mod proxy; // reverse proxy
pub(crate) mod request_fields; // fields that upstreams and scripts get in place of those of the client
mod redirect; // redirects
mod respond; // fixed text
pub(crate) mod spool; // bodies received ahead of their reader
mod task; // tasks with an owner
mod timer; // timer for inactivity of an upstream or script

use std::sync::Arc;

use futures_util::future::{Either, FutureExt, ready};
use weft::{Application, Directory, Request, Response};

pub(crate) use cgi::Cgi;
pub(crate) use gateway::FORWARDED_METHODS;
pub(crate) use proxy::Proxy;
pub(crate) use redirect::Redirect;
pub(crate) use respond::Respond;

/// Application of a route. It gets paths without the route's prefix; the prefix is the request's
/// mount.
pub(crate) enum App {
    Cgi(Cgi),
    Files(Directory),
    Proxy(Arc<Proxy>),
    Redirect(Redirect),
    Respond(Respond),
}

impl App {
    /// Creates the application of one worker, with caches and connections of its own.
    pub(crate) fn for_worker(&self, has_metrics: bool) -> App {
        match self {
            App::Cgi(cgi) => App::Cgi(cgi.clone()),
            App::Files(directory) => App::Files(directory.clone()),
            App::Proxy(proxy) => {
                let own = Proxy::clone(proxy);
                App::Proxy(Arc::new(if has_metrics { own.with_metrics() } else { own }))
            }
            App::Redirect(redirect) => App::Redirect(redirect.clone()),
            App::Respond(respond) => App::Respond(respond.clone()),
        }
    }

    /// Handles a request. The future is ready at once if the response needs no waiting. Futures
    /// that wait are boxed, because each request would need as much memory as the largest of them.
    /// They borrow nothing, so that a reload may replace the router meanwhile.
    pub(crate) fn call(&self, request: Request) -> impl Future<Output = Response> + use<> {
        let now = |response| Either::Left(ready(response));
        let later = match self {
            App::Files(directory) => return Either::Left(directory.call(request)),
            App::Redirect(redirect) => return Either::Right(now(redirect.response(&request))),
            App::Respond(respond) => return Either::Right(now(respond.response(&request))),
            App::Cgi(cgi) => {
                let cgi = cgi.clone();
                async move { cgi.call(request).await }.boxed_local()
            }
            App::Proxy(proxy) => {
                let proxy = proxy.clone();
                async move { proxy.call(request).await }.boxed_local()
            }
        };
        Either::Right(Either::Right(later))
    }
}
