//! Requests that meet conditions.

use std::path::Path;

use weft::testing;
use weft_config::{Document, Problem, SectionKey, Sources, read_section};

use super::*;

fn parse(when: &str) -> Result<(Conditions, String), Vec<String>> {
    let text = format!("[route]\nwhen = {when}\n");
    let sources = Sources::of_text("f", text, Path::new(""));
    let document = Document::parse(&sources);
    let (mut config, mut problems) = (WhenConfig::default(), Vec::<Problem>::new());
    for (_, tables) in document.sections() {
        read_section(&WHEN, &mut config, &tables, &|_| None, &mut problems);
    }
    let problems = document.with_syntax_problems(problems);
    let printed = WHEN[0].show(&config);
    match config.conditions {
        Some(conditions) if problems.is_empty() => Ok((conditions, printed)),
        _ => Err(problems.into_iter().map(|problem| problem.message).collect()),
    }
}

fn conditions(when: &str) -> Conditions {
    parse(when).unwrap_or_else(|problems| panic!("{when}: {problems:?}")).0
}

fn is_met(conditions: &Conditions, head: &str) -> bool {
    decide(conditions, head).unwrap()
}

fn decide(conditions: &Conditions, head: &str) -> Result<bool, Undecided> {
    let request = testing::request(format!("{head}\r\nHost: a.example\r\n\r\n"));
    conditions.match_request(&RequestValues::new(&request))
}

/// Each row: conditions, a request that meets the conditions, and another request.
#[test]
fn requests_meet_conditions() {
    for (when, met, unmet) in [
        (r#"{ method = "GET" }"#, "HEAD / HTTP/1.1", "POST / HTTP/1.1"),
        (r#"{ method = ["PUT", "POST"] }"#, "POST / HTTP/1.1", "GET / HTTP/1.1"),
        (r#"{ method = "!= POST" }"#, "GET / HTTP/1.1", "POST / HTTP/1.1"),
        (
            r#"{ header = { X-Canary = "1" } }"#,
            "GET / HTTP/1.1\r\nx-canary: 1",
            "GET / HTTP/1.1\r\nx-canary: 10",
        ),
        (r#"{ header = { X-A = "!= 1" } }"#, "GET / HTTP/1.1", "GET / HTTP/1.1\r\nX-A: 1"),
        // Each field line counts.
        (
            r#"{ header = { X-A = "1" } }"#,
            "GET / HTTP/1.1\r\nX-A: 0\r\nX-A: 1",
            "GET / HTTP/1.1\r\nX-A: 0, 1",
        ),
        (
            r#"{ header = { X-A = "!= 1" } }"#,
            "GET / HTTP/1.1\r\nX-A: 0\r\nX-A: 2",
            "GET / HTTP/1.1\r\nX-A: 0\r\nX-A: 1",
        ),
        (
            r#"{ header = { User-Agent = "~ (?i)curl" } }"#,
            "GET / HTTP/1.1\r\nUser-Agent: Curl/8",
            "GET / HTTP/1.1\r\nUser-Agent: wget",
        ),
        (
            r#"{ header = { User-Agent = "!~ ^curl" } }"#,
            "GET / HTTP/1.1\r\nUser-Agent: a curl",
            "GET / HTTP/1.1\r\nUser-Agent: curl",
        ),
        (r#"{ header = { X-A = true } }"#, "GET / HTTP/1.1\r\nX-A:", "GET / HTTP/1.1"),
        (r#"{ header = { X-A = false } }"#, "GET / HTTP/1.1", "GET / HTTP/1.1\r\nX-A:"),
        (
            r#"{ cookie = { beta = ["1", "~ ^y"] } }"#,
            "GET / HTTP/1.1\r\nCookie: a=1; beta=yes",
            "GET / HTTP/1.1\r\nCookie: xbeta=1; beta=no; betas=1",
        ),
        (
            r#"{ cookie = { beta = ["~ ^[a-z]", "!= out"] } }"#,
            "GET / HTTP/1.1\r\nCookie: beta=in",
            "GET / HTTP/1.1\r\nCookie: beta=in; beta=out",
        ),
        (
            r#"{ query = { "días" = "a b" } }"#,
            "GET /?x&d%C3%ADas=a+b HTTP/1.1",
            "GET /?d%C3%ADas=a%2Bb HTTP/1.1",
        ),
        (r#"{ query = { debug = true } }"#, "GET /?a=1&debug HTTP/1.1", "GET /?debugs HTTP/1.1"),
        (
            r#"{ value = { "{scheme}:{query.a}" = "http:1" } }"#,
            "GET /?a=1 HTTP/1.1",
            "GET /?a=2 HTTP/1.1",
        ),
        (
            r#"{ value = { "{cookie.a}" = false } }"#,
            "GET / HTTP/1.1",
            "GET / HTTP/1.1\r\nCookie: a=1",
        ),
        // All conditions of a table, and one of the tables.
        (
            r#"{ header = { X-A = "1" }, query = { a = "1" } }"#,
            "GET /?a=1 HTTP/1.1\r\nX-A: 1",
            "GET /?a=1 HTTP/1.1",
        ),
        (
            r#"[{ header = { X-A = "1" } }, { query = { a = "1" } }]"#,
            "GET /?a=1 HTTP/1.1",
            "GET /?a=2 HTTP/1.1\r\nX-A: 2",
        ),
        // Operators as values.
        (r#"{ query = { a = "= ~ x" } }"#, "GET /?a=~+x HTTP/1.1", "GET /?a=x HTTP/1.1"),
        (r#"{ query = { a = "~x" } }"#, "GET /?a=~x HTTP/1.1", "GET /?a=x HTTP/1.1"),
    ] {
        let (conditions, printed) = parse(when).unwrap();
        assert!(is_met(&conditions, met), "{when}: {met}");
        assert!(!is_met(&conditions, unmet), "{when}: {unmet}");
        assert_eq!(parse(&printed), Ok((conditions, printed.clone())), "{when}: {printed}");
    }
}

#[test]
fn reports_invalid_conditions() {
    for (when, expected) in [
        ("{}", "an empty table would match every request"),
        ("[]", "expected at least one condition"),
        ("[{}]", "an empty table would match every request"),
        ("1", "expected a table of conditions"),
        (r#"{ headers = { a = "1" } }"#, "did you mean `header`?"),
        (r#"{ header = { "a b" = "1" } }"#, "expected the name of a field"),
        (r#"{ header = { Host = "a" } }"#, "the host is the name of a section"),
        (r#"{ header = { Cookie = "a" } }"#, "cookies have the condition `cookie`"),
        (r#"{ header = { A = 1 } }"#, "expected a value, a list of values, true or false"),
        (r#"{ header = { A = [] } }"#, "expected at least one value"),
        (r#"{ header = { A = "~ (" } }"#, "has an invalid pattern at character 1"),
        (r#"{ value = { "a" = "1" } }"#, "expected a text with placeholders"),
        (r#"{ value = { "{user}" = "1" } }"#, "not known before the request has a route"),
        (r#"{ value = { "{re.1}" = "1" } }"#, "not known before the request has a route"),
        (r#"{ value = { "{hosts}" = "1" } }"#, "did you mean {host}?"),
        (r#"{ method = "get" }"#, "GET in place of get"),
        (r#"{ method = "~ GET" }"#, "`~` is not permitted here"),
        (r#"{ client = "a" }"#, "expected an address"),
        (r#"{ client = [] }"#, "expected at least one value"),
    ] {
        let problems = parse(when).unwrap_err();
        assert!(problems[0].contains(expected), "{when}: {problems:?}");
    }
}

#[test]
fn the_number_of_conditions_is_bounded() {
    let headers = |count: usize| {
        let headers: Vec<_> = (0..count).map(|n| format!("X-{n} = \"1\"")).collect();
        parse(&format!("{{ header = {{ {} }} }}", headers.join(", ")))
    };
    assert!(headers(MAX_CONDITIONS).is_ok());
    assert!(headers(MAX_CONDITIONS + 1).unwrap_err()[0].contains("at most 64 conditions"));
    let values = |count: usize| {
        let values: Vec<_> = (0..count).map(|n| format!("\"{n}\"")).collect();
        parse(&format!("{{ header = {{ A = [{}] }} }}", values.join(", ")))
    };
    assert!(values(64).is_ok());
    assert!(values(65).unwrap_err()[0].contains("at most 64 values"));
}

/// A name that a client repeats without end costs a bounded number of comparisons, and decides
/// neither a condition nor its opposite.
#[test]
fn the_number_of_values_is_bounded() {
    for (repetitions, expected) in
        [(MAX_REPETITIONS, Ok(true)), (MAX_REPETITIONS + 1, Err(Undecided))]
    {
        let request = |line: &str, last: &str| {
            let lines = line.repeat(repetitions - 1);
            format!("GET / HTTP/1.1\r\nCookie: {lines}{last}")
        };
        let accepted = conditions(r#"{ cookie = { a = "~ ^1" } }"#);
        assert_eq!(decide(&accepted, &request("a=2; ", "a=1")), expected, "{repetitions}");
        let refused = conditions(r#"{ cookie = { a = "!~ ^1" } }"#);
        assert_eq!(decide(&refused, &request("a=2; ", "a=2")), expected, "{repetitions}");
        // Decided by the first value, and without a look at the values.
        assert_eq!(decide(&refused, &request("a=1; ", "a=2")), Ok(false), "{repetitions}");
        let present = conditions(r#"{ cookie = { a = true } }"#);
        assert_eq!(decide(&present, &request("a=2; ", "a=2")), Ok(true), "{repetitions}");
    }
}

#[test]
fn covers_later_conditions() {
    for (earlier, later, expected) in [
        (r#"{ query = { a = "1" } }"#, r#"{ query = { a = "1" } }"#, true),
        (r#"{ query = { a = "1" } }"#, r#"{ query = { a = "1", b = "2" } }"#, true),
        (r#"{ query = { a = "1", b = "2" } }"#, r#"{ query = { a = "1" } }"#, false),
        (r#"{ query = { a = "1" } }"#, r#"{ cookie = { a = "1" } }"#, false),
        (r#"[{ query = { a = "1" } }, { method = "GET" }]"#, r#"{ method = "GET" }"#, true),
        (r#"{ method = "GET" }"#, r#"[{ query = { a = "1" } }, { method = "GET" }]"#, false),
        (r#"{ client = "10.0.0.0/8" }"#, r#"{ client = "10.0.0.0/8", method = "PUT" }"#, true),
        (r#"{ client = "10.0.0.0/8" }"#, r#"{ method = "PUT" }"#, false),
    ] {
        assert_eq!(conditions(earlier).cover(&conditions(later)), expected, "{earlier} {later}");
    }
}
