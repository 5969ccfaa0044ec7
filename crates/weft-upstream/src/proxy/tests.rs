//! Tests of the proxy as an application, without the server around it.

use weft::testing::{self, TestServer};

use super::*;
use crate::connect::upstream::Upstream;
use crate::settings::health_check_settings::{HealthCheck, HealthCheckTarget};
use crate::spool;
use crate::url::http_version::HttpVersion;

fn proxy_to(url: &str, change: impl FnOnce(&mut ProxySettings)) -> ReverseProxy {
    let upstreams = ProxySettings::parse_upstreams(url).unwrap();
    let mut settings = ProxySettings { upstreams, ..ProxySettings::default() };
    change(&mut settings);
    ReverseProxy::with_settings(settings, Arc::default()).unwrap()
}

/// A client may keep many requests waiting for an upstream: the future of each is kept.
#[test]
fn futures_of_requests_are_small() {
    let proxy = Arc::new(proxy_to("http://127.0.0.1:1", |_| {}));
    let forwarded = |head: &'static str| {
        size_of_val(&*ReverseProxy::respond(proxy.clone(), weft::testing::request(head)))
    };
    let without_body = forwarded("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let with_body = forwarded("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na");
    let connecting = {
        fn size<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        size(Upstream::connect_with_preface)
    };
    let received = {
        fn size<A, B, C, D, F>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
            size_of::<F>()
        }
        size(spool::receive)
    };
    assert!(without_body <= 568, "{without_body}");
    assert!(with_body <= 400, "{with_body}");
    assert!(connecting <= 456, "{connecting}");
    assert!(received <= 128, "{received}");
}

fn set_check(settings: &mut ProxySettings, target: &str, url: &str) {
    settings.upstreams = ProxySettings::parse_upstreams(url).unwrap();
    let target = HealthCheckTarget::parse(target.to_owned());
    settings.check = Some(HealthCheck { target, ..HealthCheck::default() });
}

#[test]
fn validates_settings() {
    for (change, expected) in [
        ((|settings| settings.max_streams = 0) as fn(&mut ProxySettings), "max_streams"),
        (|settings| settings.max_http2_connections = 0, "max_http2_connections"),
        (|settings| settings.http_version = HttpVersion::Http2, ""),
        (|settings| set_check(settings, "grpc", "h2c://127.0.0.1:1"), ""),
        (
            |settings| set_check(settings, "grpc", "http://127.0.0.1:1"),
            "needs upstreams with HTTP/2: `h2c://`",
        ),
        (|settings| settings.grpc_web = true, ""),
        (
            |settings| {
                settings.grpc_web = true;
                settings.upstreams = ProxySettings::parse_upstreams("http://127.0.0.1:1").unwrap();
            },
            "`grpc_web` needs upstreams with HTTP/2",
        ),
        (|settings| set_check(settings, "grpcx", "h2c://127.0.0.1:1"), "must begin with a slash"),
    ] {
        let upstreams = ProxySettings::parse_upstreams("h2c://127.0.0.1:1").unwrap();
        let mut settings = ProxySettings { upstreams, ..ProxySettings::default() };
        change(&mut settings);
        let proxy = ReverseProxy::with_settings(settings, Arc::default());
        let reason = proxy.err().map(|invalid| invalid.to_string()).unwrap_or_default();
        assert!(reason.contains(expected) && reason.is_empty() == expected.is_empty(), "{reason}");
    }
}

// -- requests that the server does not pass on to its applications

/// The router responds to `OPTIONS *` itself.
#[test]
fn forwards_options_of_the_whole_server_over_http2() {
    let upstream = TestServer::start(async |request: Request| {
        let text = format!("{} {} {:?}", request.method(), request.target(), request.version());
        Response::text(text)
    });
    let proxy = proxy_to(&format!("h2c://{}/", upstream.address()), |_| {});
    let request = testing::request("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
    testing::call(proxy, request).assert_text("OPTIONS * HTTP/2.0");
}

/// The function gets GET for HEAD; the upstream gets HEAD and sends no content.
#[test]
fn forwards_head_from_a_function() {
    let upstream = TestServer::start(async |request: Request| {
        Response::text("text").with_header("x-method", request.received_method().as_str())
    });
    let proxy = proxy_to(&format!("http://{}/", upstream.address()), |_| {});
    let gateway = async |request: Request| match request.method().as_str() {
        "GET" => proxy.call(request).await,
        _ => Response::method_not_allowed("GET"),
    };
    for (method, text) in [("HEAD", ""), ("GET", "text")] {
        let request = testing::request(format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n"));
        let response = testing::call(gateway, request);
        assert_eq!(response.header("x-method"), Some(method));
        response.assert_text(text);
    }
}

/// The server rejects content whose length is above the limit before it calls the proxy.
#[test]
fn size_of_a_web_call_is_limited() {
    let upstream = TestServer::start(async |mut request: Request| {
        while let Ok(Some(_)) = request.body().chunk().await {}
        Response::text("")
    });
    for (media_type, body) in [
        ("application/grpc-web+proto", "123456789"),
        ("application/grpc-web-text+proto", "MTIzNDU2Nzg="),
    ] {
        let proxy = proxy_to(&format!("h2c://{}/", upstream.address()), |settings| {
            settings.grpc_web = true;
            settings.max_body_bytes = 8;
        });
        let request = testing::request(format!(
            "POST /test.Service/Method HTTP/1.1\r\nHost: h\r\nContent-Type: {media_type}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let response = testing::call(proxy, request);
        assert_eq!(response.header("content-type"), Some(media_type));
        let status = response.body.escape_ascii().to_string();
        let is_refused = status.contains("grpc-status: 3") || status.starts_with("gAAAA");
        assert!(is_refused, "{media_type}: {status}");
    }
}
