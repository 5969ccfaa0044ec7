//! The response cache: what is stored, who shares a response, and limits.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::sync::Semaphore;
use weft::cache::{Cache, EntryOrder, Purge, QueryKey, Store};
use weft::middleware::Compress;
use weft::testing::{self, TestResponse};
use weft::{Application, Body, Method, Request, Response, StatusCode};

use crate::common::clients::{ClientRequest, Transport, wait_until};

/// An application that counts its requests, and responds with the fields of the query: `cc` is
/// `Cache-Control`, others have their own names. The content is the number of the request.
#[derive(Clone, Default)]
struct Origin {
    requests: Arc<AtomicUsize>,
    /// Statuses of the next responses; 200 without one.
    statuses: Arc<Mutex<Vec<u16>>>,
}

impl Origin {
    fn fail_next(&self, statuses: &[u16]) {
        self.statuses.lock().unwrap().extend(statuses.iter().rev());
    }

    fn count(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

impl Application for Origin {
    async fn call(&self, request: Request) -> Response {
        let number = self.requests.fetch_add(1, SeqCst) + 1;
        let status = self.statuses.lock().unwrap().pop().unwrap_or(200);
        let mut response = Response::text(format!("response {number}"))
            .with_status(StatusCode::from_u16(status).unwrap());
        for (name, value) in request.query_pairs() {
            let name = if name == "cc" { "cache-control" } else { &name };
            response.append_header(name, &*value);
        }
        response
    }
}

/// Sends a request, given as its first line and further field lines, to host `a`.
fn send(app: &(impl Application + Clone + Send + 'static), head: &str) -> TestResponse {
    let (line, fields) = head.split_once('\n').unwrap_or((head, ""));
    let fields: String = fields.lines().map(|line| format!("{line}\r\n")).collect();
    let text = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    testing::call(app.clone(), testing::request(text))
}

/// Each row: two requests, the settings, and true if the second one gets the response to the first.
#[test]
fn shared_responses_and_their_twins() {
    let plain = |cache: Cache| cache;
    type Configure = fn(Cache) -> Cache;
    let lang: Configure = |cache| cache.key_cookies(["lang"]);
    let tenant: Configure = |cache| cache.key_fields(["X-Tenant"]);
    let ignoring: Configure = |cache| cache.ignore_client(true);
    let only_n: Configure = |cache| cache.query(QueryKey::Only(vec!["cc".into(), "n".into()]));
    let except_utm: Configure = |cache| cache.query(QueryKey::Except(vec!["utm".into()]));
    let bypassing: Configure = |cache| cache.bypass(|head| head.path().starts_with("/x"));
    let rows: &[(Configure, &str, &str, bool)] = &[
        (plain, "GET /?cc=max-age%3D9", "GET /?cc=max-age%3D9", true),
        (plain, "GET /?cc=max-age%3D9", "HEAD /?cc=max-age%3D9", true),
        (plain, "HEAD /?cc=max-age%3D9", "GET /?cc=max-age%3D9", false),
        (plain, "GET /?cc=no-store", "GET /?cc=no-store", false),
        // The key has the host in lowercase, and no default port.
        (plain, "GET http://b/?cc=max-age%3D9", "GET http://B:80/?cc=max-age%3D9", true),
        (plain, "GET http://b/?cc=max-age%3D9", "GET http://b:81/?cc=max-age%3D9", false),
        (plain, "GET http://b/?cc=max-age%3D9", "GET http://c/?cc=max-age%3D9", false),
        // Paths are compared as they are sent: the application may see a difference.
        (plain, "GET /a?cc=max-age%3D9", "GET /%61?cc=max-age%3D9", false),
        (plain, "GET /a?cc=max-age%3D9", "GET //a?cc=max-age%3D9", false),
        (plain, "GET /?cc=max-age%3D9&n=1&n=2", "GET /?cc=max-age%3D9&n=2&n=1", false),
        (only_n, "GET /?cc=max-age%3D9&n=1&m=1", "GET /?cc=max-age%3D9&n=1&m=2", true),
        (only_n, "GET /?cc=max-age%3D9&n=1&m=1", "GET /?cc=max-age%3D9&n=2&m=1", false),
        (except_utm, "GET /?cc=max-age%3D9&utm=1", "GET /?cc=max-age%3D9", true),
        (except_utm, "GET /?cc=max-age%3D9&utm=1", "GET /?cc=max-age%3D9&utn=1", false),
        // Fields that change the resource unseen.
        (plain, "GET /?cc=max-age%3D9\nX-Forwarded-Host: evil", "GET /?cc=max-age%3D9", false),
        (plain, "GET /?cc=max-age%3D9\nX-Forwarded-Foo: evil", "GET /?cc=max-age%3D9", true),
        (plain, "GET /?cc=max-age%3D9\nX-Original-URL: /evil", "GET /?cc=max-age%3D9", false),
        (plain, "GET /?cc=max-age%3D9\nX-HTTP-Method-Override: PUT", "GET /?cc=max-age%3D9", false),
        // A request with content, or for a part.
        (plain, "GET /?cc=max-age%3D9\nContent-Length: 0", "GET /?cc=max-age%3D9", true),
        (plain, "GET /?cc=max-age%3D9\nTransfer-Encoding: chunked", "GET /?cc=max-age%3D9", false),
        (plain, "GET /?cc=max-age%3D9\nRange: bytes=0-1", "GET /?cc=max-age%3D9", false),
        (plain, "GET /?cc=max-age%3D9", "GET /?cc=max-age%3D9\nCache-Control: no-cache", false),
        (ignoring, "GET /?cc=max-age%3D9", "GET /?cc=max-age%3D9\nCache-Control: no-cache", true),
        (plain, "GET /?cc=max-age%3D9\nCache-Control: no-store", "GET /?cc=max-age%3D9", false),
        (
            lang,
            "GET /?cc=max-age%3D9\nCookie: lang=de; a=1",
            "GET /?cc=max-age%3D9\nCookie: a=2;lang=de",
            true,
        ),
        (
            lang,
            "GET /?cc=max-age%3D9\nCookie: lang=de",
            "GET /?cc=max-age%3D9\nCookie: lang=fr",
            false,
        ),
        (
            plain,
            "GET /?cc=max-age%3D9\nCookie: lang=de",
            "GET /?cc=max-age%3D9\nCookie: lang=fr",
            true,
        ),
        (tenant, "GET /?cc=max-age%3D9\nX-Tenant: 1", "GET /?cc=max-age%3D9\nX-Tenant: 2", false),
        (plain, "GET /?cc=max-age%3D9\nX-Tenant: 1", "GET /?cc=max-age%3D9\nX-Tenant: 2", true),
        (bypassing, "GET /x?cc=max-age%3D9", "GET /x?cc=max-age%3D9", false),
        (bypassing, "GET /y?cc=max-age%3D9", "GET /y?cc=max-age%3D9", true),
        (plain, "GET /?cc=max-age%3D9&vary=x\nX: 1", "GET /?cc=max-age%3D9&vary=x\nX: 1", true),
        (plain, "GET /?cc=max-age%3D9&vary=x\nX: 1", "GET /?cc=max-age%3D9&vary=x\nX: 2", false),
    ];
    for (configure, first, second, is_shared) in rows {
        let origin = Origin::default();
        let app = configure(Cache::new(&Store::new())).over(origin.clone());
        let chunked = first.contains("chunked");
        let first_reply = match chunked {
            true => {
                let text = format!(
                    "{}\r\n\r\n1\r\nx\r\n0\r\n\r\n",
                    first.replacen('\n', " HTTP/1.1\r\nHost: a\r\n", 1)
                );
                testing::call(app.clone(), testing::request(text))
            }
            false => send(&app, first),
        };
        assert!(first_reply.status.is_success(), "{first}: {}", first_reply.status);
        send(&app, second);
        assert_eq!(origin.count() == 1, *is_shared, "{first} | {second}");
    }
}

/// Each row: the settings, a target, and the numbers of the responses to four requests. The first
/// and the last one are of a visitor, the others of a user.
#[test]
fn refreshing_and_not_storing_are_independent() {
    type Configure = fn(Cache) -> Cache;
    fn is_user(request: &Request) -> bool {
        request.headers().contains("x-user")
    }
    let rows: [(Configure, [&str; 4]); 5] = [
        (|cache| cache, ["1", "1", "1", "1"]),
        (|cache| cache.refresh(is_user), ["1", "2", "3", "3"]),
        (|cache| cache.no_store(is_user), ["1", "1", "1", "1"]),
        (|cache| cache.refresh(is_user).no_store(is_user), ["1", "2", "3", "1"]),
        (|cache| cache.bypass(is_user), ["1", "2", "3", "1"]),
    ];
    for (number, (configure, expected)) in rows.into_iter().enumerate() {
        let app = configure(Cache::new(&Store::new())).over(Origin::default());
        let (visitor, user) = ("GET /?cc=max-age%3D9", "GET /?cc=max-age%3D9\nX-User: 1");
        let responses = [visitor, user, user, visitor].map(|request| send(&app, request));
        for (response, expected) in responses.iter().zip(expected) {
            assert_eq!(response.body, format!("response {expected}"), "row {number}");
        }
    }
    // Nothing is stored at a miss either.
    for (is_stored, configure) in [
        (true, (|cache| cache) as Configure),
        (true, |cache| cache.refresh(is_user)),
        (false, |cache| cache.no_store(is_user)),
    ] {
        let app = configure(Cache::new(&Store::new())).over(Origin::default());
        send(&app, "GET /?cc=max-age%3D9\nX-User: 1").assert_text("response 1");
        let second = send(&app, "GET /?cc=max-age%3D9");
        second.assert_text(if is_stored { "response 1" } else { "response 2" });
    }
}

#[test]
fn hits_have_the_fields_and_the_content_of_the_response() {
    let origin = Origin::default();
    let app = Cache::new(&Store::new()).over(origin.clone());
    let target = "GET /?cc=max-age%3D90&x-a=1&x-a=2&date=Sun%2C+06+Nov+2094+08%3A49%3A37+GMT";
    let (first, second) = (send(&app, target), send(&app, target));
    first.assert_text("response 1");
    second.assert_text("response 1");
    assert_eq!(first.header("cache-status"), Some("Weft; fwd=uri-miss; stored"));
    assert_eq!(second.header("cache-status").unwrap().split("ttl=").next(), Some("Weft; hit; "));
    assert_eq!(second.header("date"), Some("Sun, 06 Nov 2094 08:49:37 GMT"));
    let values: Vec<_> = second.headers.iter().filter(|(name, _)| name == "x-a").collect();
    assert_eq!(values.len(), 2);
    let part = send(&app, &format!("{target}\nRange: bytes=0-3"));
    assert_eq!((part.status.as_u16(), &part.body[..]), (206, &b"resp"[..]));
    assert_eq!(origin.count(), 1);
}

#[test]
fn unsafe_methods_invalidate_what_they_change() {
    for (method, target, status, requests) in [
        ("POST", "/", 200, 3),
        ("PUT", "/", 303, 3),
        ("M-SEARCH", "/", 200, 3),
        ("OPTIONS", "/", 200, 2),
        ("POST", "/", 500, 2),
        ("POST", "/other", 200, 2),
        ("POST", "/other?location=/", 200, 3),
        ("POST", "/other?content-location=http://a/", 200, 3),
        ("POST", "/other?location=http://b/", 200, 2),
        ("POST", "/dir/other?location=../", 200, 2),
    ] {
        let origin = Origin::default();
        let cache = Cache::new(&Store::new()).lifetime(200..=200, Duration::from_secs(90));
        let app = cache.over(origin.clone());
        send(&app, "GET /");
        origin.fail_next(&[status]);
        send(&app, &format!("{method} {target}"));
        send(&app, "GET /");
        assert_eq!(origin.count(), requests, "{method} {target} {status}");
    }
}

#[test]
fn stale_responses_replace_errors_if_permitted() {
    for (cc, failure, expected) in [
        ("max-age=0, stale-if-error=60", 503, (200, "response 1")),
        ("max-age=0, stale-if-error=60", 404, (404, "response 2")),
        ("max-age=0, stale-if-error=60, must-revalidate", 503, (503, "response 2")),
        ("max-age=0", 503, (503, "response 2")),
    ] {
        let origin = Origin::default();
        let app = Cache::new(&Store::new()).over(origin.clone());
        let cc = cc.replace('=', "%3D").replace(", ", "%2C+");
        let target = format!("GET /?etag=%221%22&cc={cc}");
        send(&app, &target);
        origin.fail_next(&[failure]);
        let reply = send(&app, &target);
        assert_eq!(
            (reply.status.as_u16(), std::str::from_utf8(&reply.body).unwrap()),
            expected,
            "{cc}"
        );
        // The next response is stored as usual.
        send(&app, &target).assert_text("response 3");
    }
}

#[test]
fn a_304_confirms_the_stored_response() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    let origin = async move |request: Request| {
        let condition = request.headers().get("if-none-match").map(str::to_owned);
        seen.lock().unwrap().push(condition.clone());
        match condition {
            Some(_) => Response::new(StatusCode::NOT_MODIFIED)
                .with_header("cache-control", "max-age=60")
                .with_header("x-new", "1"),
            None => Response::text("whole")
                .with_header("cache-control", "max-age=0")
                .with_header("etag", "\"1\""),
        }
    };
    let app = Cache::new(&Store::new()).over(origin);
    send(&app, "GET /");
    let validated = send(&app, "GET /\nIf-None-Match: \"other\"");
    validated.assert_text("whole");
    assert_eq!(validated.header("x-new"), Some("1"));
    assert_eq!(validated.header("cache-status"), Some("Weft; fwd=stale; fwd-status=304; stored"));
    send(&app, "GET /").assert_text("whole");
    assert_eq!(*requests.lock().unwrap(), [None, Some("\"1\"".to_owned())]);
}

/// A 304 excludes one of its fields. The field that differs in one letter is stored.
#[test]
fn a_304_stores_no_excluded_fields() {
    let origin = async |request: Request| match request.headers().contains("if-none-match") {
        true => Response::new(StatusCode::NOT_MODIFIED)
            .with_header("cache-control", "max-age=60, private=\"x-user\"")
            .with_header("x-user", "bob")
            .with_header("x-usef", "bob"),
        false => Response::text("whole")
            .with_header("cache-control", "max-age=0")
            .with_header("etag", "\"1\""),
    };
    let app = Cache::new(&Store::new()).over(origin);
    send(&app, "GET /");
    send(&app, "GET /");
    let hit = send(&app, "GET /");
    assert_eq!((hit.header("x-user"), hit.header("x-usef")), (None, Some("bob")));
}

/// The client asks for the validation of a fresh response, or a stale one needs it.
#[test]
fn the_reason_of_a_validation_is_stated() {
    for (cc, request, reason) in
        [("max-age%3D90", "\nCache-Control: no-cache", "request"), ("max-age%3D0", "", "stale")]
    {
        let app = Cache::new(&Store::new()).over(Origin::default());
        let target = format!("GET /?etag=%221%22&cc={cc}{request}");
        send(&app, &target);
        let status = format!("Weft; fwd={reason}; fwd-status=200; stored");
        assert_eq!(send(&app, &target).header("cache-status"), Some(&*status));
    }
}

/// Two routes with caches of different names share a store.
#[test]
fn hits_have_the_name_of_their_cache() {
    let (store, origin) = (Store::new(), Origin::default());
    let [one, two] = ["One", "Two"].map(|name| Cache::new(&store).name(name).over(origin.clone()));
    send(&one, "GET /?cc=max-age%3D90");
    for (app, name) in [(&one, "One; hit"), (&two, "Two; hit"), (&one, "One; hit")] {
        let reply = send(app, "GET /?cc=max-age%3D90");
        assert!(reply.header("cache-status").unwrap().starts_with(name), "{name}");
    }
}

#[test]
fn purges() {
    let store = Store::new();
    let origin = Origin::default();
    let app = Cache::new(&store).over(origin.clone());
    let targets = [
        "/a?cc=max-age%3D90&cache-tag=one,two",
        "/a/b?cc=max-age%3D90&surrogate-key=two+three",
        "/c?cc=max-age%3D90",
    ];
    for (purge, expected) in [
        (Purge::All, [true, true, true]),
        (Purge::Url("http://A:80/c?cc=max-age%3D90".into()), [false, false, true]),
        (Purge::Url("https://a/c?cc=max-age%3D90".into()), [false, false, false]),
        (Purge::Prefix("http://a/a".into()), [true, true, false]),
        (Purge::Prefix("http://a/a/".into()), [false, true, false]),
        (Purge::Tag("two".into()), [true, true, false]),
        (Purge::Tag("three".into()), [false, true, false]),
        (Purge::Tag("tw".into()), [false, false, false]),
    ] {
        store.purge(&Purge::All, false);
        targets.iter().for_each(|target| _ = send(&app, &format!("GET {target}")));
        let count = store.purge(&purge, false);
        assert_eq!(count, expected.iter().filter(|is_purged| **is_purged).count(), "{purge:?}");
        let is_purged = targets.map(|target| {
            let before = origin.count();
            send(&app, &format!("GET {target}"));
            origin.count() > before
        });
        assert_eq!(is_purged, expected, "{purge:?}");
    }
}

#[test]
fn a_soft_purge_keeps_responses_for_errors() {
    let (store, origin) = (Store::new(), Origin::default());
    let cache = Cache::new(&store).stale_if_error(Duration::from_secs(90));
    let app = cache.over(origin.clone());
    send(&app, "GET /?cc=max-age%3D90");
    assert_eq!(store.purge(&Purge::All, true), 1);
    origin.fail_next(&[503]);
    send(&app, "GET /?cc=max-age%3D90").assert_text("response 1");
    send(&app, "GET /?cc=max-age%3D90").assert_text("response 3");
}

/// An application that obeys the method of the client, behind middleware that sets another one.
#[test]
fn responses_to_head_are_never_stored() {
    let origin = async |request: Request| {
        let content = if *request.received_method() == Method::HEAD { "" } else { "content" };
        Response::text(content).with_header("cache-control", "max-age=0, stale-while-revalidate=90")
    };
    let cached = Cache::new(&Store::new()).over(origin);
    let app = async move |mut request: Request| {
        request.set_method(Method::GET);
        cached.call(request).await
    };
    for line in ["HEAD /", "GET /", "HEAD /", "GET /", "GET /"] {
        send(&app, line).assert_text(if line == "GET /" { "content" } else { "" });
    }
}

/// A client with a cookie gets a private response of a URL, and others get a public one.
#[test]
fn private_responses_do_not_keep_others_out_of_the_cache() {
    let origin = async |request: Request| {
        let control = match request.headers().get("cookie") {
            Some(_) => "private",
            None => "max-age=90",
        };
        Response::text("page").with_header("cache-control", control)
    };
    let cache = Cache::new(&Store::new());
    let app = cache.over(origin);
    send(&app, "GET /\nCookie: user=1");
    send(&app, "GET /");
    assert_eq!(cache.statistics().hits, 0);
    send(&app, "GET /");
    assert_eq!(cache.statistics().hits, 1);
}

#[test]
fn what_is_requested_once_is_not_stored_with_min_uses() {
    let (store, origin) = (Store::new(), Origin::default());
    let app = Cache::new(&store).min_uses(2).over(origin.clone());
    let counts = [1, 2, 2].map(|_| {
        send(&app, "GET /?cc=max-age%3D90");
        origin.count()
    });
    assert_eq!(counts, [1, 2, 2]);
}

/// A hot set is requested among URLs that are requested once. A million URLs and 64 MiB:
/// `WEFT_SCAN=1000000 cargo test --release -p weft-http --features full --test it a_scan`
#[test]
fn a_scan_leaves_the_hot_set_and_the_limits() {
    let urls = std::env::var("WEFT_SCAN").map_or(20_000, |count| count.parse().unwrap());
    let limit: usize = if urls > 20_000 { 64 << 20 } else { 1 << 20 };
    let store = Store::new().max_bytes(limit);
    let resident = resident_bytes();
    let page = async |_: Request| {
        Response::from_body(vec![b'x'; 1_000]).with_header("cache-control", "max-age=90")
    };
    let cache = Cache::new(&store);
    let app = cache.over(page);
    let mut hot_requests = 0;
    let before = cache.statistics();
    for number in 0..urls {
        send(&app, &format!("GET /scan/{number}"));
        if number % 4 == 0 {
            hot_requests += 1;
            send(&app, &format!("GET /hot/{}", number / 4 % 50));
        }
        assert!(store.totals().0 <= limit);
    }
    let grown = resident_bytes().saturating_sub(resident);
    // Other tests of the process do not run beside the large scan.
    if urls > 20_000 {
        println!("{grown} bytes of memory in addition, {limit} permitted");
        assert!(grown <= limit + limit / 20, "{grown} bytes");
    }
    let hits = cache.statistics().hits - before.hits;
    assert!(hits * 100 >= hot_requests * 95, "{hits} of {hot_requests}");
    let (bytes, entries, evicted) = store.totals();
    assert!(bytes > limit / 2 && entries > 100 && evicted > 15_000, "{:?}", store.totals());
    let listed = store.entries(EntryOrder::Hottest, 50);
    assert!(listed.iter().all(|entry| entry.url.starts_with("http://a/hot/")), "{:?}", listed[49]);
}

/// Returns the resident memory of this process.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).map_or(0, |pages| pages.parse::<usize>().unwrap() * 4_096)
}

/// One client sends many values of a field by which a page varies; others request one of them.
#[test]
fn variants_of_a_url_are_limited_and_displace_each_other() {
    let (store, origin) = (Store::new(), Origin::default());
    let app = Cache::new(&store).over(origin.clone());
    let request = |value: usize| format!("GET /?cc=max-age%3D90&vary=x\nX: {value}");
    for value in 0..1_000 {
        send(&app, &request(value));
        send(&app, &request(0));
    }
    assert_eq!(store.totals().1, 64);
    assert_eq!(origin.count(), 1_000);
}

/// Counts the requests of an application, each of which waits for a permit.
#[derive(Clone)]
struct Gate {
    requests: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Gate {
        Gate { requests: Arc::default(), permits: Arc::new(Semaphore::new(0)) }
    }

    /// Returns the number of the request, from 0, when it has its permit.
    async fn pass(&self) -> usize {
        let number = self.requests.fetch_add(1, SeqCst);
        self.permits.acquire().await.unwrap().forget();
        number
    }

    fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

/// A stream of pieces, the next of which each permit releases.
fn released(pieces: usize, length: usize, gate: Arc<Semaphore>) -> Body {
    let pieces = stream::unfold(0, move |number| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            let piece = Bytes::from(vec![b'a' + number as u8; length]);
            (number < pieces).then_some((Ok::<_, std::io::Error>(piece), number + 1))
        }
    });
    Body::stream(pieces)
}

#[test]
fn requests_at_the_same_time_share_a_response_that_arrives() {
    on_http1(async || {
        let (requests, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (count, opener) = (requests.clone(), gate.clone());
        let origin = async move |_: Request| {
            count.fetch_add(1, SeqCst);
            Response::from_body(released(3, 4, gate.clone()))
                .with_header("cache-control", "max-age=90")
        };
        let cache = Cache::new(&Store::new());
        let server = Transport::Http1.serve(cache.over(origin));
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(server.client().await);
        }
        let mut responses = Vec::new();
        for client in &mut clients {
            responses.push(client.send(ClientRequest::get("/")).await.read_head().await.unwrap());
        }
        opener.add_permits(4);
        for response in responses {
            assert_eq!(response.collect().await.text(), "aaaabbbbcccc");
        }
        assert_eq!(requests.load(SeqCst), 1);
        wait_until("all but one were collapsed", || cache.statistics().collapsed == 19).await;
        assert_eq!(clients[0].get("/").await.text(), "aaaabbbbcccc");
        assert_eq!(cache.statistics().hits, 1);
        server.stop().await;
    });
}

#[test]
fn private_responses_are_not_shared_with_requests_that_wait() {
    on_http1(async || {
        let gate = Gate::new();
        let guarded = gate.clone();
        let origin = async move |_: Request| {
            let number = guarded.pass().await;
            Response::text(format!("{number}")).with_header("cache-control", "private")
        };
        let server = Transport::Http1.serve(Cache::new(&Store::new()).over(origin));
        let (mut one, mut other) = (server.client().await, server.client().await);
        let first = one.send(ClientRequest::get("/")).await;
        wait_until("the first request is forwarded", || gate.requests() == 1).await;
        let second = other.send(ClientRequest::get("/")).await;
        gate.permits.add_permits(2);
        assert_eq!(first.collect().await.text(), "0");
        assert_eq!(second.collect().await.text(), "1");
        // Requests of this URL no longer wait for each other.
        let pending =
            (one.send(ClientRequest::get("/")).await, other.send(ClientRequest::get("/")).await);
        wait_until("both are forwarded", || gate.requests() == 4).await;
        gate.permits.add_permits(2);
        pending.0.collect().await;
        pending.1.collect().await;
        server.stop().await;
    });
}

#[test]
fn a_failure_wakes_the_next_request() {
    on_http1(async || {
        let gate = Gate::new();
        let guarded = gate.clone();
        let origin = async move |_: Request| match guarded.pass().await {
            0 => Response::new(StatusCode::SERVICE_UNAVAILABLE),
            1 => panic!("the application panics"),
            _ => Response::text("good").with_header("cache-control", "max-age=90"),
        };
        let server = Transport::Http1.serve(Cache::new(&Store::new()).over(origin));
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(server.client().await);
        }
        let mut pending = vec![clients[0].send(ClientRequest::get("/")).await];
        wait_until("the first request is forwarded", || gate.requests() == 1).await;
        for client in &mut clients[1..] {
            pending.push(client.send(ClientRequest::get("/")).await);
        }
        gate.permits.add_permits(3);
        let mut statuses = Vec::new();
        for response in pending {
            statuses.push(response.collect().await.status);
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 200, 200, 500, 503]);
        assert_eq!(gate.requests(), 3);
        server.stop().await;
    });
}

/// Each row: the declared length of a body of 12 bytes that ends with an error or not, and true if
/// it is stored.
#[test]
fn responses_that_are_cut_short_are_not_stored() {
    for (fails, is_stored) in [(false, true), (true, false)] {
        on_http1(async || {
            let requests = Arc::new(AtomicUsize::new(0));
            let count = requests.clone();
            let origin = async move |_: Request| {
                count.fetch_add(1, SeqCst);
                let end = fails.then(|| Err(std::io::Error::other("cut")));
                let pieces = [Ok(Bytes::from_static(b"abcdef")), Ok(Bytes::from_static(b"ghijkl"))];
                Response::from_body(Body::stream(stream::iter(pieces.into_iter().chain(end))))
                    .with_header("cache-control", "max-age=90")
            };
            let server = Transport::Http1.serve(Cache::new(&Store::new()).over(origin));
            for _ in 0..2 {
                let mut client = server.client().await;
                let response = client.send(ClientRequest::get("/")).await.try_collect().await;
                // Without a byte of it on the way, an error page replaces the response.
                assert_eq!(response.is_ok_and(|it| it.status == 200), !fails);
            }
            assert_eq!(requests.load(SeqCst) == 1, is_stored, "fails: {fails}");
            server.stop().await;
        });
    }
}

/// A body larger than the limit passes: all of it arrives, it is not stored, and no more of it is
/// received than its reader takes.
#[test]
fn bodies_over_the_limit_pass_at_the_pace_of_their_reader() {
    on_http1(async || {
        const PIECE: usize = 64 << 10;
        let (requests, produced) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, pieces) = (requests.clone(), produced.clone());
        let origin = async move |_: Request| {
            count.fetch_add(1, SeqCst);
            let pieces = pieces.clone();
            let body = (0..512).map(move |_| {
                pieces.fetch_add(1, SeqCst);
                Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; PIECE]))
            });
            Response::from_body(Body::stream(stream::iter(body)))
                .with_header("cache-control", "max-age=90")
        };
        let store = Store::new();
        let cache = Cache::new(&store).max_object_bytes(1 << 20);
        let server = Transport::Http1.serve(cache.over(origin));
        let mut client = server.client().await;
        let response = client.send(ClientRequest::get("/")).await.read_head().await.unwrap();
        // The client does not read. The limit, the window, and the buffers of two sockets arrive.
        let mut last = usize::MAX;
        wait_until("the body stops", || {
            std::thread::sleep(Duration::from_millis(50));
            std::mem::replace(&mut last, produced.load(SeqCst)) == produced.load(SeqCst)
        })
        .await;
        assert!(produced.load(SeqCst) < 256, "{} pieces", produced.load(SeqCst));
        let response = response.collect().await;
        assert_eq!((response.status, response.body.len()), (200, 512 * PIECE));
        assert_eq!((store.totals().0, requests.load(SeqCst)), (0, 1));
        server.stop().await;
    });
}

/// Clients that do not read hold responses of 4 MiB that have left a store of 8 MiB. With room
/// for twice the store, further responses pass without being stored, and are complete.
#[test]
fn contents_on_their_way_have_a_bound() {
    on_http1(async || {
        const PIECE: usize = 64 << 10;
        const STORE: usize = 8 << 20;
        const CLIENTS: usize = 16;
        let origin = async |_: Request| {
            let pieces = (0..64).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; PIECE])));
            Response::from_body(Body::stream(stream::iter(pieces)))
                .with_header("cache-control", "max-age=90")
        };
        let store = Store::new().max_bytes(STORE);
        let server =
            Transport::Http1.serve(Cache::new(&store).max_object_bytes(8 << 20).over(origin));
        let bound = 2 * STORE + CLIENTS * (256 << 10) + 64 * PIECE;
        let (mut clients, mut responses) = (Vec::new(), Vec::new());
        for number in 0..CLIENTS {
            let mut client = server.client().await;
            let request = ClientRequest::get(format!("/{number}"));
            responses.push(client.send(request).await.read_head().await.unwrap());
            assert!(store.content_bytes() <= bound, "{} bytes", store.content_bytes());
            clients.push(client);
        }
        for response in responses {
            assert_eq!(response.collect().await.body.len(), 64 * PIECE);
        }
        wait_until("only stored contents remain", || store.content_bytes() <= STORE).await;
        store.purge(&Purge::All, false);
        wait_until("nothing remains", || store.content_bytes() == 0).await;
        server.stop().await;
    });
}

#[test]
fn abandoned_responses_are_finished_or_dropped() {
    for (finishes, entries) in [(true, 1), (false, 0)] {
        on_http1(async || {
            let (gate, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(()));
            let (opener, witness) = (gate.clone(), Arc::downgrade(&dropped));
            let origin = async move |_: Request| {
                let (gate, witness) = (gate.clone(), dropped.clone());
                let pieces = stream::unfold((0, witness), move |(number, witness)| {
                    let gate = gate.clone();
                    async move {
                        gate.acquire().await.unwrap().forget();
                        let piece = Ok::<_, std::io::Error>(Bytes::from_static(b"piece"));
                        (number < 2).then_some((piece, (number + 1, witness)))
                    }
                });
                Response::from_body(Body::stream(pieces)).with_header("cache-control", "max-age=90")
            };
            let store = Store::new();
            let cache = Cache::new(&store).finish_abandoned(finishes);
            let server = Transport::Http1.serve(cache.over(origin));
            let mut client = server.client().await;
            let idle = witness.strong_count();
            let response = client.send(ClientRequest::get("/")).await.read_head().await.unwrap();
            assert!(witness.strong_count() > idle);
            drop(response);
            client.abort();
            if !finishes {
                // A piece that is sent shows that the client is gone.
                opener.add_permits(1);
                wait_until("the response is dropped", || witness.strong_count() == idle).await;
            }
            opener.add_permits(3);
            if finishes {
                wait_until("the response is stored", || store.totals().1 == 1).await;
            }
            assert_eq!(store.totals().1, entries);
            server.stop().await;
        });
    }
}

#[test]
fn purges_concern_responses_that_arrive() {
    on_http1(async || {
        let gate = Arc::new(Semaphore::new(0));
        let opener = gate.clone();
        let origin = async move |_: Request| {
            Response::from_body(released(1, 4, gate.clone()))
                .with_header("cache-control", "max-age=90")
        };
        let store = Store::new();
        let server = Transport::Http1.serve(Cache::new(&store).over(origin));
        for (purge, entries) in [("http://a/other", 1), ("http://a/", 0)] {
            let mut client = server.client().await;
            store.purge(&Purge::All, false);
            let response = client.send(ClientRequest::get("/")).await.read_head().await.unwrap();
            store.purge(&Purge::Url(purge.into()), false);
            opener.add_permits(2);
            assert_eq!(response.collect().await.text(), "aaaa");
            // The response to another request is behind the end of this one.
            opener.add_permits(2);
            client.get("/?after").await;
            let urls = store.entries(EntryOrder::Largest, 9).into_iter().map(|entry| entry.url);
            assert_eq!(urls.filter(|url| url == "http://a/").count(), entries, "{purge}");
        }
        server.stop().await;
    });
}

/// Each row: the length of a content, true for one that gets smaller, and true if its compressed form
/// is kept. A form that is kept has a `Content-Length`; a stream has none.
#[test]
fn compressed_forms_of_stored_responses_are_kept() {
    for (length, is_text, is_kept) in [
        (2_000, true, true),
        (2_000, false, false),
        (200_000, true, true),
        (200_000, false, false),
        (500_000, true, false),
    ] {
        let store = Store::new();
        let origin = async move |_: Request| {
            let mut state = 1_u64;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            };
            let text = b"abcdefghij0123456789".iter().cycle().take(length).copied();
            let content: Vec<u8> =
                if is_text { text.collect() } else { (0..length).map(|_| random()).collect() };
            Response::from_body(content)
                .with_header("content-type", "text/plain")
                .with_header("cache-control", "max-age=90")
        };
        let app = weft::stack(Cache::new(&store).over(origin)).with(Compress::new());
        let case = format!("{length} bytes, {is_text}");
        let plain = send(&app, "GET /").body;
        let gzip = "GET /\nAccept-Encoding: gzip";
        let first = send(&app, gzip);
        assert_eq!(store.copied_bytes() > 0, is_kept, "{case}");
        let before = store.copied_bytes();
        let second = send(&app, gzip);
        // A stream that turns out to be not smaller is the last one.
        let is_uncoded = second.header("content-encoding").is_none();
        assert_eq!(is_uncoded, !is_text, "{case}");
        assert!(second.body == if is_uncoded { &plain } else { &first.body }, "{case}");
        assert_eq!(store.copied_bytes(), before, "{case}");
        if is_kept {
            assert_eq!(second.header("content-encoding"), Some("gzip"), "{case}");
            assert_eq!(second.header("content-length"), Some(&*second.body.len().to_string()));
            assert!(second.body.len() < length / 10 && before == second.body.len(), "{case}");
            assert_eq!(
                send(&app, "GET /\nAccept-Encoding: zstd").header("content-encoding"),
                Some("zstd")
            );
            assert!(store.copied_bytes() > before, "{case}: one for each coding");
        }
        // Other requests get the content itself.
        assert!(send(&app, "GET /").body == plain, "{case}");
        let part = send(&app, "GET /\nAccept-Encoding: gzip\nRange: bytes=10-19");
        assert_eq!((part.status.as_u16(), &part.body[..]), (206, &plain[10..20]), "{case}");
        store.purge(&Purge::All, false);
        assert_eq!(store.copied_bytes(), 0, "{case}");
    }
}

/// A quarter of the memory of the store.
#[test]
fn compressed_forms_have_a_bound() {
    const STORE: usize = 1 << 20;
    let store = Store::new().max_bytes(STORE);
    let origin = async |_: Request| {
        // Hexadecimal digits of a random sequence: half as long in a coding.
        let mut state = 1_u64;
        let digits = (0..3_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            format!("{:x}", state >> 60)
        });
        Response::text(digits.collect::<String>()).with_header("cache-control", "max-age=90")
    };
    let app = weft::stack(Cache::new(&store).over(origin)).with(Compress::new());
    let mut most = 0;
    for number in 0..240 {
        for _ in 0..2 {
            let response = send(&app, &format!("GET /{number}\nAccept-Encoding: gzip"));
            assert_eq!(response.header("content-encoding"), Some("gzip"));
        }
        most = most.max(store.copied_bytes());
    }
    assert!((STORE / 5..=STORE / 4).contains(&most), "{most}");
}

/// Runs a case on a runtime of its own.
#[track_caller]
fn on_http1(case: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(case());
}
