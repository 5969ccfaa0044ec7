//! Values that handlers return, and requests and responses that middleware takes apart.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use weft::middleware::from_fn;
use weft::testing::TestRequest;
use weft::{
    Application, BoxApplication, Error, IntoResponse, Next, Request, Response, StatusCode, header,
    stack, testing,
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn echo(request: Request) -> weft::Result<Response> {
    let field = request.headers().get("x-added").unwrap_or("none").to_owned();
    let note = request.extensions().get::<&str>().copied().unwrap_or("none");
    let peer = request.peer().address().map_or(0, |address| address.port());
    let length = request.headers().get("content-length").unwrap_or("none").to_owned();
    let body = request.into_body().collect(100).await?;
    let body = body.escape_ascii();
    Ok(Response::text(format!("{field} {note} {peer} {length} {body}")))
}

#[test]
fn middleware_changes_fields_and_body_of_a_request() {
    async fn change(mut request: Request, next: Next<'_>) -> weft::Result<Response> {
        request.extensions_mut().insert("noted");
        request.set_header("x-added", "a")?;
        let (head, body) = request.into_parts();
        let body = body.collect(100).await?.to_ascii_uppercase();
        let mut request = Request::from_parts(head, "");
        request.set_body([&body[..], b"!"].concat());
        Ok(next.call(request).await)
    }
    let request = || TestRequest::post("/").body("hello").peer(([192, 0, 2, 1], 7));
    request().call(echo).assert_text("none none 7 5 hello");
    request().call(echo.wrap(change)).assert_text("a noted 7 6 HELLO!");
}

#[test]
fn invalid_field_of_a_request_is_an_error_that_is_reported() {
    async fn change(mut request: Request, next: Next<'_>) -> weft::Result<Response> {
        let value = request.query().unwrap_or_default().replace('+', "\n");
        request.set_header("x-added", value)?;
        Ok(next.call(request).await)
    }
    let app = echo.wrap(change);
    testing::get(app.clone(), "/?a").assert_text("a none 0 none ");
    let response = testing::get(app, "/?a+b");
    assert_eq!(response.status, 500);
    let expected = "the application has set an invalid value of the field `x-added`: failed to \
                    parse header value";
    assert_eq!(response.errors, [expected]);
}

#[test]
fn middleware_changes_the_body_of_a_response_and_keeps_the_rest() {
    async fn exclaim(request: Request, next: Next<'_>) -> weft::Result<Response> {
        let (mut head, body) = next.call(request).await.into_parts();
        let body = body.collect(100).await?;
        for (name, value) in head.headers_mut() {
            if name == "x-twice" {
                *value = format!("{0}{0}", value.to_str().unwrap()).parse().unwrap();
            }
        }
        head.retain_headers(|name, _| name != "x-secret");
        Ok(Response::from_parts(head, [&body[..], b"!"].concat()))
    }
    async fn app(request: Request) -> Response {
        let response = Response::text("hello").with_status(StatusCode::CREATED);
        let response = response.with_header("x-twice", "a").with_header("x-secret", "b");
        match request.path() {
            "/length" => response.with_header(header::CONTENT_LENGTH, 5),
            "/error" => StatusCode::GONE.into(),
            _ => response,
        }
    }
    let response = testing::get(app.wrap(exclaim), "/");
    assert_eq!((response.status.as_u16(), response.header("x-twice")), (201, Some("aa")));
    assert_eq!((response.header("x-secret"), response.header("content-length")), (None, Some("6")));
    response.assert_text("hello!");
    // The body no longer has the length that the application has set.
    let response = testing::get(app.wrap(exclaim), "/length");
    assert_eq!(response.status, 500);
    assert_eq!(response.errors, ["Content-Length is not the length of the body"]);
    // A page for browsers does not replace a body that middleware has set.
    let browser = || TestRequest::get("/error").header("accept", "text/html");
    assert!(browser().call(app).header("content-type").unwrap().starts_with("text/html"));
    browser().call(app.wrap(exclaim)).assert_text("410 Gone\n!");
}

#[test]
fn set_body_replaces_the_length() {
    async fn empty(request: Request, next: Next<'_>) -> Response {
        next.call(request).await.with_body("empty")
    }
    async fn app(_: Request) -> Response {
        Response::text("text").with_header(header::CONTENT_LENGTH, 4)
    }
    let response = testing::get(app.wrap(empty), "/");
    assert_eq!((response.status.as_u16(), response.header("content-length")), (200, Some("5")));
}

#[test]
fn middleware_functions_have_a_state() {
    #[derive(Clone)]
    struct Greeting(Arc<str>);

    async fn greet(
        greeting: &Greeting,
        request: Request,
        next: Next<'_>,
    ) -> weft::Result<Response> {
        if request.path() == "/closed" {
            return Err(Error::status(StatusCode::FORBIDDEN, greeting.0.to_string()));
        }
        Ok(next.call(request).await.with_header("x-greeting", &*greeting.0))
    }
    async fn hello(_: Request) -> &'static str {
        "hello"
    }
    let greeting: Arc<str> = "good morning".into();
    let closure_state = greeting.clone();
    let closure = async move |request: Request, next: Next<'_>| {
        next.call(request).await.with_header("x-closure", &*closure_state)
    };
    let app = stack(hello).with(from_fn(Greeting(greeting), greet)).with(closure);
    // The application may run on several workers.
    let server = testing::TestServer::start(app.clone());
    drop(server);
    let response = testing::get(app.clone(), "/");
    assert_eq!(response.header("x-greeting"), Some("good morning"));
    assert_eq!(response.header("x-closure"), Some("good morning"));
    testing::get(app, "/closed").assert_text("403 Forbidden: good morning\n");
}

#[test]
fn errors_of_other_libraries_are_reported_and_keep_a_status() {
    fn number(text: &str) -> Result<u8, BoxError> {
        if text == "7" {
            return Err(Error::status(StatusCode::CONFLICT, "7 is taken").into());
        }
        Ok(text.parse()?)
    }
    async fn boxed(request: Request) -> Result<String, BoxError> {
        Ok(format!("{}", number(request.query().unwrap_or_default())?))
    }
    async fn converted(request: Request) -> weft::Result<String> {
        let number = number(request.query().unwrap_or_default())?;
        Ok(number.to_string())
    }
    for (query, status, text, errors) in [
        ("5", 200, "5", &[][..]),
        ("7", 409, "409 Conflict: 7 is taken\n", &[]),
        (
            "x",
            500,
            "500 Internal Server Error\n",
            &["the application failed: invalid digit found in string"],
        ),
    ] {
        let target = format!("/?{query}");
        for response in [testing::get(boxed, &target), testing::get(converted, &target)] {
            assert_eq!(response.status, status);
            response.assert_text(text);
            assert_eq!(response.errors, errors);
        }
    }
}

#[test]
fn handler_returns_any_response() {
    async fn app(request: Request) -> impl IntoResponse {
        match request.path() {
            "/created" => Ok(Some((StatusCode::CREATED, "created"))),
            "/missing" => Ok(None),
            _ => Err(StatusCode::IM_A_TEAPOT),
        }
    }
    for (path, status) in [("/created", 201), ("/missing", 404), ("/", 418)] {
        assert_eq!(testing::get(app, path).status, status, "{path}");
    }
}

/// A function gets HEAD as GET; a type, and middleware in front of a function, get HEAD.
#[test]
fn head_follows_get_in_functions() {
    #[derive(Clone)]
    struct Type;

    impl Application for Type {
        async fn call(&self, request: Request) -> Response {
            Response::text(request.method().to_string()).with_header("x-app", "type")
        }
    }

    async fn function(request: Request) -> Response {
        let methods = format!("{} {}", request.method(), request.received_method());
        match (request.method().as_str(), request.path()) {
            ("GET" | "POST", "/") => Response::text("text").with_header("x-app", methods),
            ("GET", "/stream") => Response::from_body(weft::Body::stream(Unread)),
            (_, "/only-post") => Response::method_not_allowed("POST"),
            _ => Response::method_not_allowed("GET"),
        }
    }

    async fn seen(request: Request, next: Next<'_>) -> Response {
        let method = request.method().to_string();
        next.call(request).await.with_header("x-seen", method)
    }

    let send = |app: BoxApplication, line: &str| {
        let head = format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
        testing::call(app, testing::request(head))
    };
    let functions = || BoxApplication::new(function.wrap(seen));
    for (line, status, length, app, seen) in [
        ("GET /", 200, Some("4"), Some("GET GET"), "GET"),
        ("HEAD /", 200, Some("4"), Some("GET HEAD"), "HEAD"),
        ("POST /", 200, Some("4"), Some("POST POST"), "POST"),
        ("HEAD /stream", 200, None, None, "HEAD"),
    ] {
        let response = send(functions(), line);
        assert_eq!((response.status.as_u16(), response.header("x-app")), (status, app), "{line}");
        assert_eq!(response.header("content-length"), length, "{line}");
        assert_eq!(response.header("x-seen"), Some(seen), "{line}");
        assert_eq!(response.body.is_empty(), line.starts_with("HEAD"), "{line}");
    }
    for (line, allow) in [("PUT /", "GET, HEAD"), ("HEAD /only-post", "POST")] {
        let response = send(functions(), line);
        assert_eq!((response.status.as_u16(), response.header("allow")), (405, Some(allow)));
    }
    let response = send(BoxApplication::new(Type), "HEAD /");
    assert_eq!(response.header("content-length"), Some("4"), "the text is the method HEAD");
}

/// A stream that must not be polled.
struct Unread;

impl futures_core::Stream for Unread {
    type Item = weft::Result<&'static str>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        panic!("a response to HEAD polls its stream")
    }
}

#[cfg(feature = "json")]
#[test]
fn handler_of_a_match_on_segments_reads_json() {
    #[derive(serde::Deserialize, serde::Serialize)]
    struct Item {
        name: String,
    }

    async fn put(id: u32, request: Request) -> weft::Result<Response> {
        let Item { name } = request.json().await?;
        Ok(Response::json(&(id, Item { name })))
    }

    async fn app(request: Request) -> weft::Result<Response> {
        let head = request.head().clone();
        match (head.method().as_str(), &*head.segments()) {
            ("PUT", ["items", id]) => {
                put(id.parse().or(Err(StatusCode::NOT_FOUND))?, request).await
            }
            _ => Ok(Response::not_found()),
        }
    }
    let request = |target: &str| {
        let request = TestRequest::put(target).header("content-type", "application/json");
        request.body(r#"{"name":"tea"}"#).call(app)
    };
    request("/items/5").assert_text(r#"[5,{"name":"tea"}]"#);
    assert_eq!(request("/items/x").status, 404);
}

#[cfg(feature = "tower")]
#[test]
fn responses_of_http_are_responses() {
    async fn app(request: Request) -> weft::Result<http::Response<weft::Body>> {
        let builder = http::Response::builder().status(202).header("x-a", "1").header("x-a", "2");
        let length = request.query().unwrap_or_default();
        let builder =
            if length.is_empty() { builder } else { builder.header("content-length", length) };
        builder.body("hello".into()).map_err(Error::other)
    }
    async fn back_and_forth(request: Request) -> Response {
        http::Response::from(app(request).await.into_response()).into()
    }
    for response in [testing::get(app, "/"), testing::get(back_and_forth, "/?5")] {
        assert_eq!((response.status.as_u16(), response.header("content-length")), (202, Some("5")));
        assert_eq!(response.headers.iter().filter(|(name, _)| name == "x-a").count(), 2);
        response.assert_text("hello");
    }
    assert_eq!(testing::get(app, "/?6").status, 500);
}

/// The text that `fn main() -> weft::Result<()>` prints.
#[test]
fn debug_output_of_an_error_is_readable() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let server = weft::Server::new(async |_: Request| "hello").listen(&*address);
    let error = server.err().expect("the address is in use");
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(format!("{error:?}").contains(&address), "{error:?}");
    assert!(format!("{error:#?}").contains("kind: Listen"), "{error:#?}");
}

/// The response states the size. Hooks, and so logs, also get the setting with the limit.
#[cfg(all(feature = "form", feature = "json"))]
#[test]
fn error_of_a_body_over_a_limit_names_the_limit_to_hooks_only() {
    async fn app(request: Request) -> weft::Result<Response> {
        let form = weft::form::FormSettings { max_all_fields_bytes: 5, ..Default::default() };
        match request.path() {
            "/collect" => drop(request.into_body().collect(5).await?),
            "/json" => drop(request.json_within::<u32>(5).await?),
            "/form" => drop(form.read::<Vec<(String, String)>>(request).await?),
            "/set" => {
                let mut body = request.into_body();
                body.set_limit(5);
                body.collect(100).await?;
            }
            _ => drop(request.into_body().collect(100).await?),
        }
        Ok(Response::text("read\n"))
    }
    let limited = app.wrap(weft::middleware::BodyLimit::new(5));
    let settings = weft::Settings { max_body_bytes: 5, ..Default::default() };
    for (target, fits, media_type, limit) in [
        ("/", "12345", "text/plain", "max_body_bytes"),
        ("/collect", "12345", "text/plain", "Body::collect(limit)"),
        ("/set", "12345", "text/plain", "Body::set_limit, BodyLimit"),
        ("/json", "12345", "application/json", "Request::json_within"),
        (
            "/form",
            "a=bcd",
            "application/x-www-form-urlencoded",
            "FormSettings::max_all_fields_bytes",
        ),
        ("/limited", "12345", "text/plain", "BodyLimit"),
    ] {
        let send = |body: String| {
            let request = TestRequest::post(target).header("content-type", media_type).body(body);
            match target {
                "/" => request.settings(settings.clone()).call(app),
                "/limited" => request.call(limited.clone()),
                _ => request.call(app),
            }
        };
        let response = send(fits.to_owned());
        assert_eq!((response.text(), response.errors.len()), ("read\n", 0), "{target}");
        let response = send(format!("{fits}6"));
        response.assert_text("413 Payload Too Large: the body is larger than 5 bytes\n");
        let expected = format!("the body is larger than 5 bytes: the limit is `{limit}`");
        assert_eq!(response.errors, [expected], "{target}");
    }
}

/// The limits of a head, likewise.
#[test]
fn error_of_a_head_over_a_limit_names_the_limit_to_hooks_only() {
    async fn app(_: Request) -> &'static str {
        "read\n"
    }
    let settings = weft::Settings {
        max_request_line_bytes: 100,
        max_head_bytes: 1_000,
        max_fields: 5,
        ..Default::default()
    };
    for (target_bytes, fields, value_bytes, expected) in [
        (50, 4, 100, None),
        (101, 4, 100, Some("max_request_line_bytes")),
        (50, 5, 100, Some("max_fields")),
        (50, 4, 400, Some("max_head_bytes")),
    ] {
        let mut request = TestRequest::get(&format!("/{}", "a".repeat(target_bytes)));
        for number in 0..fields {
            request = request.header(format!("x-{number}"), "v".repeat(value_bytes));
        }
        let response = request.settings(settings.clone()).call(app);
        assert_eq!(response.status == 200, expected.is_none(), "{expected:?}");
        let ends_with_limit = |setting: &str| {
            let limit = format!(": the limit is `{setting}`");
            response.errors.iter().any(|error| error.ends_with(&limit))
        };
        assert!(expected.is_none_or(ends_with_limit), "{:?}", response.errors);
        assert!(!response.text().contains("max_"), "{}", response.text());
    }
}
