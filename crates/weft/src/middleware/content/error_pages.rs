//! Pages for errors.

use std::sync::Arc;

use http::header::{ACCEPT_RANGES, CONTENT_RANGE, ETAG, EXPIRES, LAST_MODIFIED, TRAILER};
use http::{HeaderName, StatusCode};

use crate::app::{Application, Middleware};
use crate::message::payload::Payload;
use crate::message::representation::ErrorReplacement;
use crate::message::request::Request;
use crate::message::response::Response;

/// Replaces error responses by pages.
///
/// ```
/// use weft::middleware::ErrorPages;
/// use weft::{Application, Request, Response, StatusCode, testing};
///
/// async fn app(_: Request) -> Response { Response::not_found() }
///
/// let sorry = |status| Response::html("<h1>Nothing here</h1>").with_status(status);
/// let app = app.wrap(ErrorPages::new().page([StatusCode::NOT_FOUND], sorry));
/// let reply = testing::get(app, "/");
/// assert_eq!(reply.status, 404);
/// reply.assert_text("<h1>Nothing here</h1>");
/// ```
///
/// The responses of this library are replaced: responses made from a [`StatusCode`] or an
/// [`Error`](crate::Error), as by the other middleware, and responses of a
/// [`Directory`](crate::files::Directory). Responses that an application has composed itself are
/// kept, unless [`intercept`](ErrorPages::intercept) is called. Responses to failed preconditions
/// on files and to unsatisfiable ranges, which the engine creates later, are replaced, too; those
/// to malformed requests reach no application.
///
/// Fields of the replaced response that do not describe its content are kept, such as `Allow`,
/// `Retry-After`, `Set-Cookie` and `WWW-Authenticate`.
#[derive(Clone, Default)]
pub struct ErrorPages {
    /// Pages by status.
    pages: Vec<(StatusCode, Page)>,
    intercepts: bool,
}

type Page = Arc<dyn Fn(StatusCode) -> Response + Send + Sync>;

impl ErrorPages {
    /// Creates the middleware without pages.
    pub fn new() -> ErrorPages {
        ErrorPages::default()
    }

    /// Adds a page for some statuses of 400 and above. It is created for each response; its status
    /// may be another one. Of several pages for a status, the first applies.
    pub fn page(
        mut self,
        statuses: impl IntoIterator<Item = StatusCode>,
        page: impl Fn(StatusCode) -> Response + Send + Sync + 'static,
    ) -> ErrorPages {
        let page: Page = Arc::new(page);
        for status in statuses {
            if let Err(at) = self.find(status) {
                self.pages.insert(at, (status, page.clone()));
            }
        }
        self
    }

    /// Replaces also responses that the application has composed, if there is a page for their
    /// status.
    pub fn intercept(self) -> ErrorPages {
        ErrorPages { intercepts: true, ..self }
    }

    fn find(&self, status: StatusCode) -> Result<usize, usize> {
        self.pages.binary_search_by_key(&status, |(of, _)| *of)
    }

    /// Replaces a response as if an application had returned it.
    pub fn apply(&self, response: Response) -> Response {
        let is_error = response.status.is_client_error() || response.status.is_server_error();
        match is_error && (response.is_generated_error || self.intercepts) {
            true => self.replace(response),
            false => response,
        }
    }

    /// Lets the pages replace errors that the engine makes of a file response.
    fn replace_later(&self, response: &mut Response) {
        let of_engine = [StatusCode::PRECONDITION_FAILED, StatusCode::RANGE_NOT_SATISFIABLE];
        if of_engine.iter().any(|status| self.find(*status).is_ok()) {
            let pages = self.clone();
            let replacement = ErrorReplacement(Arc::new(move |response| pages.replace(response)));
            response.extensions.insert(replacement);
        }
    }

    #[cold]
    fn replace(&self, response: Response) -> Response {
        let status = response.status;
        match self.find(status) {
            Ok(found) => (self.pages[found].1)(status).as_page_of(response),
            Err(_) => response,
        }
    }
}

impl Middleware for ErrorPages {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let mut response = next.call(request).await;
        if matches!(response.payload, Payload::File(_)) {
            self.replace_later(&mut response);
        }
        self.apply(response)
    }
}

impl Response {
    /// Returns true for an error that the library has made from a [`StatusCode`] or an
    /// [`Error`](crate::Error), and that [`ErrorPages`] replace.
    pub fn is_generated_error(&self) -> bool {
        self.is_generated_error
    }

    /// Returns this response as the page of an error, as [`ErrorPages`] do: with the fields of the
    /// error that do not describe its content, and that the page does not have itself.
    pub fn as_page_of(mut self, error: Response) -> Response {
        let is_set = |name: &HeaderName| self.headers.iter().any(|(set, _)| set == name);
        let is_kept = |name: &HeaderName| !describes_content(name) && !is_set(name);
        let kept: Vec<_> =
            error.headers.iter().filter(|(name, _)| is_kept(name)).cloned().collect();
        self.headers.to_mut().extend(kept);
        // The error for the hooks.
        self.extensions.extend(error.extensions);
        self
    }
}

/// Returns true for a field of the replaced content, such as `Content-Encoding`,
/// `Content-Security-Policy` and `ETag`.
fn describes_content(name: &HeaderName) -> bool {
    const OTHERS: [&str; 3] = ["digest", "repr-digest", "want-content-digest"];
    // `Content-Range` of a 416 has the length of the file (RFC 9110 §15.5.17).
    (name.as_str().starts_with("content-") && *name != CONTENT_RANGE)
        || [ACCEPT_RANGES, ETAG, EXPIRES, LAST_MODIFIED, TRAILER].contains(name)
        || OTHERS.contains(&name.as_str())
}

impl std::fmt::Debug for ErrorPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let statuses: Vec<_> = self.pages.iter().map(|(status, _)| status.as_u16()).collect();
        f.debug_struct("ErrorPages")
            .field("pages", &statuses)
            .field("intercepts", &self.intercepts)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestResponse, get};
    use http::header::{CONTENT_ENCODING, LOCATION, RETRY_AFTER, SET_COOKIE};

    fn pages() -> ErrorPages {
        let page = |status| Response::html(format!("page {status}")).with_status(status);
        let moved = |_| Response::redirect(StatusCode::FOUND, "/sorry");
        ErrorPages::new()
            .page([StatusCode::NOT_FOUND, StatusCode::TOO_MANY_REQUESTS], page)
            .page([StatusCode::NOT_FOUND, StatusCode::FORBIDDEN], moved)
    }

    fn reply(pages: ErrorPages, response: fn() -> Response) -> TestResponse {
        get((async move |_: Request| response()).wrap(pages), "/")
    }

    fn composed() -> Response {
        Response::text("own").with_status(StatusCode::NOT_FOUND)
    }

    #[test]
    fn replaces_responses_of_the_library() {
        reply(pages(), Response::not_found).assert_text("page 404 Not Found");
        reply(pages(), || StatusCode::GONE.into()).assert_text("410 Gone\n");
        let moved = reply(pages(), || StatusCode::FORBIDDEN.into());
        assert_eq!((moved.status.as_u16(), moved.header("location")), (302, Some("/sorry")));
    }

    #[test]
    fn replaces_composed_responses_only_if_it_intercepts() {
        reply(pages(), composed).assert_text("own");
        reply(pages().intercept(), composed).assert_text("page 404 Not Found");
        reply(pages().intercept(), || Response::text("fine")).assert_text("fine");
        let gone = || Response::text("own").with_status(StatusCode::GONE);
        reply(pages().intercept(), gone).assert_text("own");
    }

    #[test]
    fn keeps_fields_that_do_not_describe_the_content() {
        let response = || {
            Response::from(StatusCode::TOO_MANY_REQUESTS)
                .with_header(RETRY_AFTER, "7")
                .with_header(SET_COOKIE, "a=b")
                .with_header(ETAG, "\"e\"")
                .with_header(CONTENT_ENCODING, "gzip")
        };
        let reply = reply(pages(), response);
        assert_eq!(reply.header("retry-after"), Some("7"));
        assert_eq!(reply.header("set-cookie"), Some("a=b"));
        assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
        for removed in [ETAG, CONTENT_ENCODING, LOCATION] {
            assert_eq!(reply.header(removed.as_str()), None);
        }
    }
}
