//! What can answer for a route.

pub(crate) mod cgi; // scripts
pub(crate) mod proxy; // upstreams
mod redirect; // another place
mod respond; // a text

use weft::{Application, Directory, Request, Response};

pub(crate) use cgi::Cgi;
pub(crate) use proxy::Proxy;
pub(crate) use redirect::{Redirect, escape};
pub(crate) use respond::Respond;

/// One of the applications. It sees paths without the prefix of its route, which is the
/// request's mount.
#[derive(Clone)]
pub(crate) enum App {
    Cgi(Cgi),
    Files(Directory),
    Proxy(Proxy),
    Redirect(Redirect),
    Respond(Respond),
}

impl Application for App {
    async fn call(&self, request: Request) -> Response {
        // What waits for others is large, and boxed: otherwise each request for a file would
        // take as much.
        match self {
            App::Cgi(cgi) => Box::pin(cgi.call(request)).await,
            App::Files(directory) => directory.call(request).await,
            App::Proxy(proxy) => Box::pin(proxy.call(request)).await,
            App::Redirect(redirect) => redirect.answer(&request),
            App::Respond(respond) => respond.answer(),
        }
    }
}
