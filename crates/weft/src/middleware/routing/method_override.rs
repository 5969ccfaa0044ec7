//! Method override for clients that can only send POST.

use http::{Method, StatusCode};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;

/// Replaces the method of a POST with the value of its field `X-HTTP-Method-Override`, for clients
/// or proxies that support only GET and POST.
///
/// ```
/// use weft::middleware::MethodOverride;
/// use weft::{Application, Request, Response, testing};
///
/// async fn app(request: Request) -> Response { Response::text(request.method().to_string()) }
///
/// let app = app.wrap(MethodOverride::new().query("_method"));
/// let send = |head| testing::call(app.clone(), testing::request(format!("{head}\r\n\r\n")));
/// send("POST / HTTP/1.1\r\nHost: a\r\nX-HTTP-Method-Override: PATCH").assert_text("PATCH");
/// send("POST /?_method=delete HTTP/1.1\r\nHost: a").assert_text("DELETE");
/// send("GET /?_method=delete HTTP/1.1\r\nHost: a").assert_text("GET");
/// ```
///
/// A method that is not [allowed](MethodOverride::methods) gets 400, because handling the request
/// as POST would not be what the client intended. Method names are compared case-insensitively.
#[derive(Clone, Debug)]
pub struct MethodOverride {
    methods: Vec<Method>,
    parameter: Option<Box<str>>,
}

impl Default for MethodOverride {
    fn default() -> MethodOverride {
        MethodOverride {
            methods: vec![Method::PUT, Method::PATCH, Method::DELETE],
            parameter: None,
        }
    }
}

impl MethodOverride {
    /// Evaluates the field, for PUT, PATCH and DELETE.
    pub fn new() -> MethodOverride {
        MethodOverride::default()
    }

    /// Sets the methods that can replace POST. Default: PUT, PATCH and DELETE.
    pub fn methods(self, methods: impl Into<Vec<Method>>) -> MethodOverride {
        MethodOverride { methods: methods.into(), ..self }
    }

    /// Also evaluates a query parameter, by convention `_method`, if the field is missing:
    /// `<form method="post" action="/item?_method=delete">`. The body is never evaluated.
    ///
    /// Off by default: a page of another site can send such a form from the browser of any
    /// visitor, with their cookies, while it can send neither the field nor a real DELETE without
    /// a CORS preflight. Protect such requests against CSRF like any POST.
    pub fn query(self, parameter: &str) -> MethodOverride {
        MethodOverride { parameter: Some(parameter.into()), ..self }
    }

    /// The method requested instead of POST, unparsed.
    fn requested<'a>(&self, head: &'a RequestHead) -> Option<&'a [u8]> {
        head.headers().get_bytes("x-http-method-override").or_else(|| {
            let parameter = self.parameter.as_deref()?;
            let mut pairs = head.query()?.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == parameter).map(|(_, value)| value.as_bytes())
        })
    }
}

impl Middleware for MethodOverride {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        let requested = match *request.method() {
            Method::POST => self.requested(&request),
            _ => None,
        };
        if let Some(requested) = requested {
            let is_requested =
                |method: &&Method| method.as_str().as_bytes().eq_ignore_ascii_case(requested);
            let Some(method) = self.methods.iter().find(is_requested) else {
                return StatusCode::BAD_REQUEST.into();
            };
            request.set_method(method.clone());
        }
        next.call(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, request};

    #[test]
    fn replaces_only_post_with_allowed_methods() {
        let field = MethodOverride::new();
        let query = MethodOverride::new().query("_method");
        let purge = Method::from_bytes(b"PURGE").unwrap();
        let other = MethodOverride::new().methods([purge]);
        let rejected = "400 Bad Request\n";
        for (middleware, line, field, seen) in [
            (&field, "POST /", "", "POST"),
            (&field, "POST /", "X-HTTP-Method-Override: PUT", "PUT"),
            (&field, "POST /", "x-http-method-override: patch", "PATCH"),
            (&field, "POST /", "X-HTTP-Method-Override: DELETE", "DELETE"),
            (&field, "POST /", "X-HTTP-Method-Override: GET", rejected),
            (&field, "POST /", "X-HTTP-Method-Override: CONNECT", rejected),
            (&field, "POST /", "X-HTTP-Method-Override:", rejected),
            (&field, "POST /?_method=PUT", "", "POST"),
            (&field, "GET /", "X-HTTP-Method-Override: PUT", "GET"),
            (&field, "PUT /", "X-HTTP-Method-Override: DELETE", "PUT"),
            (&query, "POST /?_method=PUT", "", "PUT"),
            (&query, "POST /?a=b&_method=delete&_method=put", "", "DELETE"),
            (&query, "POST /?_method=PUT", "X-HTTP-Method-Override: PATCH", "PATCH"),
            (&query, "POST /?_method=TRACE", "", rejected),
            (&query, "POST /?_method=", "", rejected),
            (&query, "POST /?_method", "", "POST"),
            (&query, "POST /?x_method=PUT", "", "POST"),
            (&query, "GET /?_method=PUT", "", "GET"),
            (&other, "POST /", "X-HTTP-Method-Override: PURGE", "PURGE"),
            (&other, "POST /", "X-HTTP-Method-Override: PUT", rejected),
        ] {
            let app = async |request: Request| Response::text(request.method().to_string());
            let field_line = if field.is_empty() { "" } else { "\r\n" };
            let head = format!("{line} HTTP/1.1\r\nHost: a{field_line}{field}\r\n\r\n");
            let reply = call(app.wrap(middleware.clone()), request(head));
            assert_eq!(String::from_utf8_lossy(&reply.body), seen, "{line} {field}");
        }
    }
}
