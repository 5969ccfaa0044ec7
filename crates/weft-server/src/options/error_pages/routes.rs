//! Error pages that other routes of the host respond with.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use weft::header::{self, HeaderName};
use weft::{Method, Request, Response, StatusCode};
use weft_upstream::RequestFields;

use super::{ErrorPage, PageSource, PageStatus};
use crate::options::layer::{Layer, NamedRoutes, WorkerLayer, WrappedApp};

/// Middleware that requests the pages of errors from routes.
pub(super) struct RoutePages {
    pages: Arc<[ErrorPage]>,
    intercepts: bool,
    /// Names of request fields that the failed route sets or removes. A page's route gets them from
    /// no client, who could claim to be another user.
    own_fields: Arc<[HeaderName]>,
    routes: NamedRoutes,
}

/// Mark of a request for the page of an error. An error of this request has a built-in page, so
/// that routes cannot request pages from each other without end.
#[derive(Clone)]
struct IsForPage;

impl RoutePages {
    /// Creates the layer for the pages of `list` that routes have.
    pub(super) fn layer(
        list: &[ErrorPage],
        intercepts: bool,
        own_fields: Vec<HeaderName>,
    ) -> Layer {
        let (pages, own_fields): (Arc<[_]>, Arc<[_]>) = (list.into(), own_fields.into());
        Layer::with_routes(move |routes| RoutePages {
            pages: pages.clone(),
            intercepts,
            own_fields: own_fields.clone(),
            routes: routes.clone(),
        })
    }

    /// Returns the name of the route with the page for a response, and the status of the page.
    fn page_of(&self, response: &Response) -> Option<(&str, PageStatus)> {
        let status = response.status();
        let is_error = status.is_client_error() || status.is_server_error();
        if !is_error || !(response.is_generated_error() || self.intercepts) {
            return None;
        }
        // The first page of a status applies, and pages of a class after them.
        let mut of_status = self.pages.iter().filter(|page| page.of.contains(status));
        let page = of_status.clone().find(|page| page.of.is_single()).or(of_status.next())?;
        match &page.source {
            PageSource::Route(name) => Some((name, page.status)),
            PageSource::Default | PageSource::File(_) | PageSource::Url(_) => None,
        }
    }

    /// Requests the page of an error. If the route fails, the error has its built-in page.
    async fn complete(&self, mut question: Request, error: Response) -> Response {
        let Some((name, status)) = self.page_of(&error) else { return error };
        if *question.method() != Method::HEAD {
            question.set_method(Method::GET);
        }
        question.extensions_mut().insert(IsForPage);
        self.own_fields.iter().for_each(|name| RequestFields::remove(&mut question, name.clone()));
        let mut page = self.routes.respond(question, name).await;
        if status == PageStatus::OfRoute {
            return page;
        }
        if page.is_generated_error() || page.status() == StatusCode::NOT_MODIFIED {
            return error;
        }
        for validator in [header::ETAG, header::LAST_MODIFIED, header::ACCEPT_RANGES] {
            page.remove_header(validator);
        }
        page.with_status(status.of(error.status())).as_page_of(error)
    }
}

impl WorkerLayer for RoutePages {
    fn respond(
        self: &Rc<Self>,
        request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response> {
        if request.extensions().get::<IsForPage>().is_some() {
            return next.respond(request);
        }
        let (this, question) = (self.clone(), request.without_body());
        let response = next.respond(request);
        async move { this.complete(question, response.await).await }.boxed_local()
    }
}
