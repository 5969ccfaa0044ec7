//! Bodies of requests.

use super::*;

#[test]
fn forwards_a_response_sent_before_the_request_body() {
    let (send, trigger) = std::sync::mpsc::channel::<()>();
    let (tell_count, count) = std::sync::mpsc::channel();
    let trigger = Mutex::new(trigger);
    let upstream = raw_upstream(move |_, mut stream| {
        read_head(&mut stream);
        stream.read_exact(&mut [0; 5]).unwrap();
        stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nn").unwrap();
        trigger.lock().unwrap().recv().unwrap();
        stream.write_all(b"o").unwrap();
        // The proxy closes the connection after the response, possibly with a reset.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        tell_count.send(rest.len()).unwrap();
    });
    let proxy =
        Proxy::start(&http_url(upstream), "buffer_requests = false, max_body_bytes = \"1 GiB\"");
    let mut client = Client::tcp(proxy.address());
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\nbegin");
    assert!(client.head()[0].starts_with("HTTP/1.1 403 "));
    assert_eq!(client.body(1), b"n");
    client.send([b'x'; 10_000]);
    send.send(()).unwrap();
    assert_eq!(client.body(1), b"o");
    assert_eq!(count.recv_timeout(PATIENCE), Ok(0), "the rest of the body is not forwarded");
}

#[test]
fn slow_clients_do_not_cause_upstream_timeouts() {
    // The upstream sends the head of the response, or its body, after the complete request.
    let (head, body) = ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "yes");
    let complete = || format!("{head}{body}");
    // Longer than the usual delay of a responsive upstream on a loaded machine.
    let short_timeout = "500ms";
    // An upstream without support for `Expect` has one second to send a 100.
    let longer = "1500ms";
    for (at_once, then, short_timeout, expect, early) in [
        ("", complete(), short_timeout, "", "bo"),
        (head, body.to_owned(), short_timeout, "", "bo"),
        ("", complete(), longer, "Expect: 100-continue\r\n", ""),
    ] {
        let upstream = raw_upstream(move |_, mut stream| {
            while let Some(head) = read_head(&mut stream) {
                stream.write_all(at_once.as_bytes()).unwrap();
                // Other requests get no complete response.
                if head.starts_with("POST ") {
                    stream.read_exact(&mut [0; 4]).unwrap();
                    stream.write_all(then.as_bytes()).unwrap();
                }
            }
        });
        let timeouts = ["response_timeout", "body_timeout"]
            .map(|name| format!("{name} = \"{short_timeout}\""));
        let options = format!("{}, buffer_requests = false", timeouts.join(", "));
        let proxy = Proxy::start(&http_url(upstream), &options);
        let mut client = Client::tcp(proxy.address());
        let fields = format!("Host: h\r\nContent-Length: 4\r\n{expect}");
        client.send(format!("POST / HTTP/1.1\r\n{fields}\r\n{early}"));
        if !expect.is_empty() {
            assert_eq!(client.head(), ["HTTP/1.1 100 Continue"]);
        }
        // Meanwhile other requests run into the timeout.
        for _ in 0..2 {
            let response = get(proxy.address(), "/");
            assert!(response.status == 504 || !response.is_complete, "{response:?}");
        }
        client.send(&"body"[early.len()..]);
        assert_eq!(client.response().body, b"yes", "{at_once}{expect}");
    }
}

#[test]
fn forwards_expect_100_continue() {
    let request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    // An upstream that rejects the request before the body, one that sends a 100, and one that does
    // not support `Expect`.
    for (sends_continue, rejects) in [(false, true), (true, false), (false, false)] {
        let upstream = raw_upstream(move |_, mut stream| {
            let head = read_head(&mut stream).unwrap();
            assert!(head.contains("expect: 100-continue\r\n"), "{head}");
            let mut body = [0; 4];
            if sends_continue {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            }
            if rejects {
                stream.write_all(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n").unwrap();
                assert_eq!(stream.read(&mut body).unwrap_or(0), 0, "the body is not forwarded");
            } else {
                stream.read_exact(&mut body).unwrap();
                assert_eq!(&body, b"body");
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
        });
        let proxy = Proxy::start(&http_url(upstream), "buffer_requests = false");
        let mut client = Client::tcp(proxy.address());
        client.send(request);
        if rejects {
            assert_eq!(client.response().status, 401);
        } else {
            assert_eq!(client.head(), ["HTTP/1.1 100 Continue"]);
            client.send("body");
            assert_eq!(client.response().status, 200);
        }
    }
}

#[test]
fn rejects_oversized_and_invalid_request_bodies() {
    let upstream = TestServer::start(async |mut request: Request| {
        while let Ok(Some(_)) = request.body().chunk().await {}
        Response::text("ok")
    });
    let proxy = Proxy::start(&upstream.url("/"), "max_body_bytes = 9");
    for (body, status) in [
        ("Content-Length: 10\r\n\r\n0123456789", 413),
        ("Content-Length: 9\r\n\r\n012345678", 200),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n", 413),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\nzz\r\n", 400),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{body}");
        assert_eq!(send_request(proxy.address(), &request).status, status, "{body}");
    }
}
