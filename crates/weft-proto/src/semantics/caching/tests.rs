//! Tables of cases: fields of a request and of its response, and the decisions.

use http::{Method, StatusCode};

use super::*;
use crate::headers::Headers;

/// Time at which all responses are received: Sun, 06 Nov 1994 08:49:37 GMT.
const NOW: u64 = 784_111_777;

fn headers(lines: &str) -> Headers {
    let lines: String = lines.lines().map(|line| format!("{}\r\n", line.trim())).collect();
    Headers::parse(format!("{lines}\r\n")).unwrap()
}

fn policy_with(
    status: u16,
    request: &str,
    response: &str,
    defaults: &Defaults<'_>,
) -> Result<Policy, Refusal> {
    let exchange = Exchange {
        method: &Method::GET,
        request: &headers(request),
        status: StatusCode::from_u16(status).unwrap(),
        response: &headers(response),
        requested: NOW,
        received: NOW,
    };
    Policy::of(&exchange, defaults)
}

fn policy(response: &str) -> Result<Policy, Refusal> {
    policy_with(200, "Host: a", response, &Defaults { is_heuristic: true, ..Defaults::default() })
}

/// Returns the time for which a response is fresh, as it is received.
fn ttl(response: &str) -> i64 {
    policy(response).expect(response).ttl(NOW)
}

#[test]
fn lifetimes() {
    for (response, seconds) in [
        ("Cache-Control: max-age=60", 60),
        ("Cache-Control: MAX-AGE=60", 60),
        ("Cache-Control: max-age=\"60\"", 60),
        ("Cache-Control: max-age=0060", 60),
        ("Cache-Control: max-age=60, max-age=30", 30),
        ("Cache-Control: max-age=60\nCache-Control: max-age=30", 30),
        ("Cache-Control: max-age=99999999999999999999999", 1 << 31),
        ("Cache-Control: ext=\"max-age=9\", max-age=60", 60),
        ("Cache-Control: max-age=60, s-maxage=10", 10),
        ("Cache-Control: s-maxage=100, max-age=1", 100),
        // Another cache has had it for a while.
        ("Cache-Control: max-age=60\nAge: 20", 40),
        ("Cache-Control: max-age=60\nAge: 20, 7", 40),
        ("Cache-Control: max-age=60\nAge: 20;x=1", 40),
        ("Cache-Control: max-age=60\nAge: 2x", 60),
        ("Cache-Control: max-age=60\nAge: -2", 60),
        ("Cache-Control: max-age=60\nDate: Sun, 06 Nov 1994 08:49:27 GMT", 50),
        ("Cache-Control: max-age=60\nDate: Sun, 06 Nov 1994 08:49:57 GMT", 60),
        // Expires counts from Date.
        ("Expires: Sun, 06 Nov 1994 08:50:37 GMT", 60),
        ("Expires: sun, 06 nov 1994 08:50:37 gmt", 60),
        ("Expires: Sunday, 06-Nov-94 08:50:37 GMT", 60),
        ("Expires: Sun, 06 Nov 1994 08:50:37 GMT\nDate: Sun, 06 Nov 1994 08:49:47 GMT", 50),
        ("Expires: Sun, 06 Nov 1994 08:50:37 GMT\nCache-Control: max-age=5", 5),
        // A targeted field replaces both.
        ("CDN-Cache-Control: max-age=7\nCache-Control: max-age=60", 7),
        ("CDN-Cache-Control: max-age=7\nCache-Control: no-store", 7),
        ("CDN-Cache-Control: max-age=7\nWeft-Cache-Control: max-age=8", 8),
        ("CDN-Cache-Control: max-age=7;a=b, ext\nExpires: 0", 7),
        ("CDN-Cache-Control: MAX-AGE=7\nCache-Control: max-age=60", 60),
        ("CDN-Cache-Control: max-age=7, &&\nCache-Control: max-age=60", 60),
        ("CDN-Cache-Control: max-age=\"7\"\nCache-Control: max-age=60", 60),
        ("CDN-Cache-Control: max-age =7\nCache-Control: max-age=60", 60),
        // A tenth of the time since the last change, at most a day.
        ("Last-Modified: Sun, 06 Nov 1994 08:47:57 GMT", 10),
        ("Last-Modified: Sun, 06 Nov 1980 08:47:57 GMT", 86_400),
        ("Cache-Control: max-age=60\nLast-Modified: Sun, 06 Nov 1994 08:47:57 GMT", 60),
    ] {
        assert_eq!(ttl(response), seconds, "{response}");
    }
}

#[test]
fn stale_from_the_start() {
    for response in [
        "Cache-Control: max-age=0",
        "Cache-Control: max-age=-1",
        "Cache-Control: max-age='60'",
        "Cache-Control: max-age=60.0",
        "Cache-Control: max-age= 60",
        "Cache-Control: max-age=60\nAge: 60",
        "Expires: 0",
        "Expires: Sun, 06 Nov 1994 08:49:37 GMT",
        "Expires: Sun, 06 Nov 1994 08:50:37 UTC",
        "Expires: Sun, 06 Nov 1994 08:50:37 GMT\nExpires: Sun, 06 Nov 1994 08:50:37 GMT",
        "CDN-Cache-Control: max-age=0\nCache-Control: max-age=60",
        "X: nothing",
    ] {
        assert_eq!(policy(response), Err(Refusal::Lifetime), "{response}");
        // With a validator the response is stored, and is validated each time.
        assert!(ttl(&format!("{response}\nETag: \"1\"")) <= 0, "{response}");
    }
}

#[test]
fn refusals_and_their_twins() {
    const FRESH: &str = "Cache-Control: max-age=60";
    type Row = (u16, &'static str, &'static str, Option<Refusal>);
    let rows: &[Row] = &[
        (200, "", "no-store, max-age=60", Some(Refusal::NoStore)),
        (200, "", "NO-STORE, max-age=60", Some(Refusal::NoStore)),
        (200, "", "no-stored, max-age=60", None),
        (200, "", "no-store, must-understand, max-age=60", None),
        (299, "", "no-store, must-understand, max-age=60", Some(Refusal::Status)),
        (299, "", "max-age=60", None),
        (200, "", "private, max-age=60", Some(Refusal::Private)),
        (200, "", "private=\"x-user\", max-age=60", None),
        (200, "", "max-age=60, x=\"no-store, private\"", None),
        (200, "", "max-age=60, x=\"\\\", no-store\"", None),
        // Without its end, a quoted string hides no directive.
        (200, "", "max-age=60, x=\"a, no-store, b", Some(Refusal::NoStore)),
        (206, "", "max-age=60", Some(Refusal::Status)),
        (304, "", "max-age=60", Some(Refusal::Status)),
        (500, "", "max-age=60", None),
        (403, "", "x\nETag: \"1\"", Some(Refusal::Lifetime)),
        (404, "", "x\nETag: \"1\"", None),
        (200, "Authorization: x", "max-age=60", Some(Refusal::Authorization)),
        (200, "Authorization: x", "max-age=60, public", None),
        (200, "Authorization: x", "max-age=60, must-revalidate", None),
        (200, "Authorization: x", "max-age=60, proxy-revalidate", Some(Refusal::Authorization)),
        (200, "Authorization: x", "s-maxage=60", None),
        (200, "Cookie: x=1", "max-age=60", None),
        (200, "", "max-age=60\nSet-Cookie: a=b", Some(Refusal::Cookie)),
        (200, "", "max-age=60, public\nSet-Cookie: a=b", None),
        (200, "", "max-age=60\nVary: a, *", Some(Refusal::Vary)),
        (200, "", "max-age=60\nVary:\nVary: *", Some(Refusal::Vary)),
        (200, "", "max-age=60\nVary: a1,a2,a3,a4,a5,a6,a7,a8,a9,a10,a11,a12,a13,a14,a15,a16", None),
        (
            200,
            "",
            "max-age=60\nVary: a1,a2,a3,a4,a5,a6,a7,a8,a9,a10,a11,a12,a13,a14,a15,a16,a17",
            Some(Refusal::Vary),
        ),
    ];
    for (status, request, control, refusal) in rows {
        let (request, response) =
            (format!("Host: a\n{request}"), format!("Cache-Control: {control}"));
        let decision = policy_with(*status, request.trim(), &response, &Defaults::default());
        assert_eq!(decision.err(), *refusal, "{status} {request} {response}");
    }
    let post = Exchange {
        method: &Method::POST,
        request: &headers("Host: a"),
        status: StatusCode::OK,
        response: &headers(FRESH),
        requested: NOW,
        received: NOW,
    };
    assert_eq!(Policy::of(&post, &Defaults::default()), Err(Refusal::Method));
}

#[test]
fn settings_fill_what_responses_leave_open() {
    let lifetimes = [(404..=404, 5), (200..=499, 30)];
    let defaults = Defaults { lifetimes: &lifetimes, stores_cookies: true, ..Defaults::default() };
    let ttl = |status, response| {
        policy_with(status, "Host: a", response, &defaults).map(|it| it.ttl(NOW))
    };
    assert_eq!(ttl(200, "X: y"), Ok(30));
    assert_eq!(ttl(404, "X: y"), Ok(5));
    assert_eq!(ttl(403, "Set-Cookie: a=b"), Ok(30));
    assert_eq!(ttl(500, "X: y"), Err(Refusal::Lifetime));
    assert_eq!(ttl(200, "Cache-Control: max-age=60"), Ok(60));
    assert_eq!(ttl(200, "Cache-Control: no-store"), Err(Refusal::NoStore));
}

#[test]
fn reuse_by_age_and_by_what_the_client_accepts() {
    const FRESH: &str = "fresh";
    const STALE: &str = "while revalidating";
    const VALIDATE: &str = "validate";
    const OR_ERROR: &str = "validate, or in place of an error";
    for (response, request, after, expected) in [
        ("max-age=60", "", 59, FRESH),
        ("max-age=60", "", 60, VALIDATE),
        ("max-age=60, no-cache", "", 0, VALIDATE),
        ("max-age=60, no-cache=\"x\"", "", 0, VALIDATE),
        ("max-age=60, immutable", "", 59, FRESH),
        ("max-age=60, immutable", "", 60, VALIDATE),
        ("max-age=60, stale-while-revalidate=30", "", 90, STALE),
        ("max-age=60, stale-while-revalidate=30", "", 91, VALIDATE),
        ("max-age=60, stale-while-revalidate=30, must-revalidate", "", 61, VALIDATE),
        ("max-age=60, stale-while-revalidate=30", "no-cache", 61, VALIDATE),
        ("max-age=60, stale-if-error=30", "", 90, OR_ERROR),
        ("max-age=60, stale-if-error=30", "", 91, VALIDATE),
        ("max-age=60, stale-if-error=30, proxy-revalidate", "", 61, VALIDATE),
        ("max-age=60", "no-cache", 0, VALIDATE),
        ("max-age=60", "max-age=10", 10, FRESH),
        ("max-age=60", "max-age=10", 11, VALIDATE),
        ("max-age=60", "max-age=x", 11, FRESH),
        ("max-age=60", "min-fresh=10", 50, FRESH),
        ("max-age=60", "min-fresh=10", 51, VALIDATE),
        ("max-age=60", "max-stale=10", 70, FRESH),
        ("max-age=60", "max-stale=10", 71, VALIDATE),
        ("max-age=60", "max-stale", 1_000, FRESH),
        ("max-age=60, must-revalidate", "max-stale", 60, VALIDATE),
        ("max-age=60, proxy-revalidate", "max-stale", 60, VALIDATE),
        ("s-maxage=60", "max-stale", 60, VALIDATE),
        ("s-maxage=60, stale-if-error=30", "", 60, OR_ERROR),
        ("s-maxage=60", "", 59, FRESH),
    ] {
        let policy = policy(&format!("Cache-Control: {response}\nETag: \"1\"")).unwrap();
        let control = match request {
            "" => RequestControl::default(),
            _ => RequestControl::of(&headers(&format!("Cache-Control: {request}"))),
        };
        let found = match policy.reuse(&control, NOW + after) {
            Reuse::Fresh { age } => (FRESH, age),
            Reuse::WhileRevalidating { age } => (STALE, age),
            Reuse::Validate { age, may_replace_error: false } => (VALIDATE, age),
            Reuse::Validate { age, may_replace_error: true } => (OR_ERROR, age),
        };
        assert_eq!(found, (expected, after), "{response} | {request} | {after}");
    }
}

#[test]
fn excluded_fields_are_a_list() {
    for (control, expected) in [
        ("private=\"set-cookie, X-User\"", &["set-cookie", "x-user"][..]),
        ("private=\"set-cookie\", private=\"x-user\"", &["set-cookie", "x-user"]),
        ("private=set-cookie", &["set-cookie"]),
        ("extension=\"set-cookie, x-user\"", &[]),
    ] {
        let policy = policy(&format!("Cache-Control: max-age=60, {control}")).unwrap();
        assert_eq!(policy.excluded_fields(), expected, "{control}");
    }
}

#[test]
fn pragma_counts_without_cache_control() {
    for (request, is_no_cache) in [
        ("Pragma: no-cache", true),
        ("Pragma: other", false),
        ("Pragma: no-cache\nCache-Control: max-age=9", false),
    ] {
        assert_eq!(RequestControl::of(&headers(request)).is_no_cache, is_no_cache, "{request}");
    }
}

#[test]
fn settings_of_stale_responses_yield_to_s_maxage() {
    let defaults =
        Defaults { stale_if_error: 30, stale_while_revalidate: 10, ..Defaults::default() };
    for (control, expected) in [
        ("max-age=60", Reuse::WhileRevalidating { age: 65 }),
        ("s-maxage=60", Reuse::Validate { age: 65, may_replace_error: false }),
        (
            "max-age=60, stale-while-revalidate=0",
            Reuse::Validate { age: 65, may_replace_error: true },
        ),
    ] {
        let response = format!("Cache-Control: {control}");
        let policy = policy_with(200, "Host: a", &response, &defaults).unwrap();
        assert_eq!(policy.reuse(&RequestControl::default(), NOW + 65), expected, "{control}");
    }
}

#[test]
fn selecting_fields() {
    const VARY: &str = "Vary: Accept-Encoding, Accept-Language, X\nContent-Language: de";
    let selects = |stored: &str, presented: &str| {
        vary::Selector::of(&headers(stored), &headers(VARY)).matches(&headers(presented))
    };
    for (stored, presented, expected) in [
        ("X: 1", "X: 1", true),
        ("X: 1", "X: 2", false),
        ("X: 1", "Y: 1", false),
        ("Y: 1", "Y: 2", true),
        ("X: 1, 2", "X: 1\nX:  2", true),
        ("X: 1, 2", "X: 2, 1", false),
        ("Accept-Encoding: gzip, br", "Accept-Encoding: br;q=0.5,  GZIP", true),
        ("Accept-Encoding: gzip, br", "Accept-Encoding: br;q=0, gzip", false),
        ("Accept-Encoding: gzip", "Accept-Encoding: gzip, identity", true),
        ("Accept-Encoding: gzip", "Accept-Encoding: gzip, identity;q=0", false),
        ("Accept-Language: en, de", "Accept-Language: DE,en", true),
        ("Accept-Language: en, de", "Accept-Language: de;q=0.9, fr;q=0.1", true),
        ("Accept-Language: en, de", "Accept-Language: de, fr", false),
        ("Accept-Language: en, de", "Accept-Language: fr, de;q=0.1", false),
    ] {
        assert_eq!(selects(stored, presented), expected, "{stored} | {presented}");
    }
}

#[test]
fn long_selecting_values_are_compared_as_they_are() {
    let value = |separator: &str| vec!["en"; 400].join(separator);
    let request = |separator| headers(&format!("Accept-Language: {}", value(separator)));
    let selector = vary::Selector::of(&request(","), &headers("Vary: Accept-Language"));
    assert!(selector.matches(&request(",")));
    assert!(!selector.matches(&request(", ")));
}

#[test]
fn stored_fields_and_their_update() {
    let fields = |lines: &str| -> Vec<(http::HeaderName, http::HeaderValue)> {
        let lines = lines.lines().map(|line| line.split_once(": ").unwrap());
        lines.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    };
    let text = |fields: &[(http::HeaderName, http::HeaderValue)]| -> String {
        let lines =
            fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        lines.collect::<Vec<_>>().join("\n")
    };
    let mut stored = fields(
        "connection: close, x-hop\nx-hop: 1\nkeep-alive: 5\nage: 3\nx-user: bob\netag: \"1\"\n\
         content-length: 5\nx-kept: 1\nx-kept: 2\nx-other: 1",
    );
    stored_fields::retain_stored(&mut stored, &["x-user".into()]);
    assert_eq!(text(&stored), "etag: \"1\"\ncontent-length: 5\nx-kept: 1\nx-kept: 2\nx-other: 1");

    let received = fields(
        "connection: x-hop\nx-hop: 2\netag: \"2\"\ncontent-length: 0\nx-kept: 3\nx-new: 1\nage: 9",
    );
    stored_fields::update(&mut stored, received);
    assert_eq!(text(&stored), "etag: \"1\"\ncontent-length: 5\nx-other: 1\nx-kept: 3\nx-new: 1");
}
