//! Error responses that this library makes: a line of text, and in its place a page or an object
//! for clients that prefer one. Pure.

use http::StatusCode;
use http::header::{CONTENT_TYPE, VARY};

use crate::message::escape::{Html, Json};
use crate::message::payload::Payload;
use crate::message::response::Response;
use weft_proto::headers::Headers;
use weft_proto::semantics::accept;

/// Gives a generated error response the form that the client prefers (RFC 9110 §12.5.1). A client
/// without a preference, such as a command-line tool, keeps the line of text.
#[cold]
pub(crate) fn negotiate(headers: &Headers, response: &mut Response) {
    let prefers = |wanted, other| accept::prefers(headers, wanted, other);
    let prefers_json = prefers("application/json", "text/html")
        || prefers("application/problem+json", "text/html");
    if !prefers_json && !prefers("text/html", "text/plain") {
        return;
    }
    let Payload::Body(line) = &response.payload else { return };
    let Some(line) = line.as_bytes() else { return };
    let error = ErrorText::new(response.status, line);
    let (media_type, body) = match prefers_json {
        true => ("application/problem+json", error.to_json()),
        false => ("text/html; charset=utf-8", error.to_html()),
    };
    response.payload = Payload::Body(body.into());
    response.set_header(CONTENT_TYPE, media_type);
    if response.header(VARY.as_str()).is_none_or(|value| value != "*") {
        response.add_vary("accept");
    }
}

/// A status and the reason for it, which may contain text of the client.
struct ErrorText<'a> {
    status: StatusCode,
    reason: &'a [u8],
}

impl<'a> ErrorText<'a> {
    /// Takes the reason from a line of the form `404 Not Found: reason`.
    fn new(status: StatusCode, line: &'a [u8]) -> ErrorText<'a> {
        let reason = line.strip_prefix(status.to_string().as_bytes());
        let reason = reason.and_then(|rest| rest.strip_prefix(b": ")).unwrap_or_default();
        ErrorText { status, reason: reason.trim_ascii_end() }
    }

    fn title(&self) -> &'static str {
        self.status.canonical_reason().unwrap_or("Error")
    }

    fn to_html(&self) -> String {
        let (code, title) = (self.status.as_u16(), self.title());
        let reason = match self.reason {
            [] => explanation(self.status).as_bytes(),
            reason => reason,
        };
        let paragraph = match reason {
            [] => String::new(),
            reason => format!("<p>{}</p>\n", Html(reason)),
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{code} {title}</title>\n<style>{STYLE}</style>\n\
             <main>\n<h1>{code} {title}</h1>\n{paragraph}</main>\n</html>\n"
        )
    }

    /// Returns problem details (RFC 9457). Without a `type`, the status defines the problem.
    fn to_json(&self) -> String {
        let (code, title) = (self.status.as_u16(), Json(self.title().as_bytes()));
        let detail = match self.reason {
            [] => String::new(),
            reason => format!(",\"detail\":{}", Json(reason)),
        };
        format!("{{\"status\":{code},\"title\":{title}{detail}}}\n")
    }
}

/// The page has no external resource, so that it needs nothing of a server that fails.
const STYLE: &str = "\
    body{margin:0;min-height:100vh;display:grid;place-items:center;\
    font:1rem/1.5 system-ui,sans-serif}\
    main{max-width:32rem;padding:2rem;box-sizing:border-box}\
    h1{margin:0;font-size:1.75rem;line-height:1.2;font-weight:600}\
    p{margin:.75rem 0 0;opacity:.75;overflow-wrap:anywhere}";

/// Returns a sentence for the reader of the page, or nothing.
fn explanation(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "This page needs a name and a password.",
        StatusCode::FORBIDDEN => "Access to this page is not permitted.",
        StatusCode::NOT_FOUND => "There is no page at this address.",
        StatusCode::GONE => "This page has been removed.",
        StatusCode::PAYLOAD_TOO_LARGE => "The upload is larger than permitted.",
        StatusCode::TOO_MANY_REQUESTS => "There were too many requests. Try again later.",
        StatusCode::INTERNAL_SERVER_ERROR => "The server has a problem. Try again later.",
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
            "The application behind this server does not respond. Try again later."
        }
        StatusCode::SERVICE_UNAVAILABLE => "The server is overloaded. Try again in a moment.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::testing::request;

    /// Returns the media type and the body that a client with this `Accept` gets.
    fn negotiated(accept: &str, mut response: Response) -> (String, String) {
        let request = request(format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n"));
        negotiate(request.headers(), &mut response);
        let media_type = response.header("content-type").unwrap().to_str().unwrap().to_owned();
        let Payload::Body(body) = response.payload else { panic!("the payload is no body") };
        (media_type, String::from_utf8(body.into_bytes().unwrap().to_vec()).unwrap())
    }

    #[test]
    fn responds_in_the_preferred_form() {
        for (accept, expected) in [
            ("*/*", "text/plain; charset=utf-8"),
            ("", "text/plain; charset=utf-8"),
            ("image/png", "text/plain; charset=utf-8"),
            ("text/plain, text/html;q=0.5", "text/plain; charset=utf-8"),
            ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8"),
            ("text/html, application/json", "text/html; charset=utf-8"),
            ("application/json", "application/problem+json"),
            ("application/json, text/plain, */*", "application/problem+json"),
            ("application/problem+json, text/html;q=0.9", "application/problem+json"),
            ("application/json;q=0", "text/plain; charset=utf-8"),
        ] {
            let (media_type, _) = negotiated(accept, StatusCode::NOT_FOUND.into());
            assert_eq!(media_type, expected, "{accept}");
        }
    }

    #[test]
    fn escapes_reasons_and_unknown_statuses() {
        let error = || Error::new(ErrorKind::Malformed, "<script>\"\u{1b}'&");
        let (_, page) = negotiated("text/html", Response::from(&error()));
        assert!(page.contains("<h1>400 Bad Request</h1>"), "{page}");
        assert!(page.contains("<p>&lt;script&gt;&quot;␛&#39;&amp;</p>"), "{page}");
        let (_, json) = negotiated("application/json", Response::from(&error()));
        let expected = r#"{"status":400,"title":"Bad Request","detail":"<script>\"\u001b'&"}"#;
        assert_eq!(json.trim_end(), expected);
        let status = StatusCode::from_u16(499).unwrap();
        let (_, page) = negotiated("text/html", status.into());
        assert!(page.contains("<h1>499 Error</h1>\n</main>"), "{page}");
    }

    #[test]
    fn keeps_the_fields_of_the_response() {
        let mut response = Response::from(StatusCode::METHOD_NOT_ALLOWED)
            .with_header(http::header::ALLOW, "GET")
            .with_header(VARY, "origin");
        let request = request("GET / HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n");
        negotiate(request.headers(), &mut response);
        for (name, expected) in [("allow", "GET"), ("vary", "origin, accept")] {
            assert_eq!(response.header(name).unwrap(), expected);
        }
    }
}
