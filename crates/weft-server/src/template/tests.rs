use weft::testing::request;

use super::*;

fn parse(text: &str) -> Template {
    Template::parse(text).unwrap_or_else(|message| panic!("{text}: {message}"))
}

const HEAD: &str = "GET /a%20b/c%2Fd%3B?x=1%262&y=d%C3%ADas+3&z HTTP/1.1\r\nHost: Example.org.:8080\r\n\
                    User-Agent: a \"b\" é\r\nCookie: a=1; bc=x/y ;b=2\r\n\r\n";

/// Each row: a template, and its expansions to text and to a URL.
#[test]
fn expands_placeholders() {
    for (template, text, url) in [
        ("", "", ""),
        ("plain", "plain", "plain"),
        ("{path}", "/a b/c/d;", "/a%20b/c%2Fd%3B"),
        ("https://h{path}", "https://h/a b/c/d;", "https://h/a%20b/c%2Fd%3B"),
        ("/?p={path}", "/?p=/a b/c/d;", "/?p=/a%20b/c/d%3B"),
        ("/new{rest}", "/new/a b/c/d;", "/new/a%20b/c%2Fd%3B"),
        ("/?{query}", "/?x=1%262&y=d%C3%ADas+3&z", "/?x=1%262&y=d%C3%ADas+3&z"),
        ("/{query}", "/x=1%262&y=d%C3%ADas+3&z", "/x%3D1%25262%26y%3Dd%25C3%25ADas%2B3%26z"),
        ("{query.x}|{query.y}|{query.z}|{query.n}", "1&2|días 3||", "1%262|d%C3%ADas%203||"),
        ("/?a={query.x}", "/?a=1&2", "/?a=1%262"),
        (
            "https://{host}{uri}",
            "https://example.org/a%20b/c%2Fd%3B?x=1%262&y=d%C3%ADas+3&z",
            "https://example.org/a%20b/c%2Fd%3B?x=1%262&y=d%C3%ADas+3&z",
        ),
        ("{scheme}://{host}:{port}/", "http://example.org:8080/", "http://example.org:8080/"),
        ("http://{query.x}.a/", "http://1&2.a/", "http://1%262.a/"),
        ("http://{cookie.bc}.a/", "http://x/y.a/", "http://x%2Fy.a/"),
        ("/{cookie.a}/{cookie.b}/{cookie.bc}", "/1/2/x/y", "/1/2/x/y"),
        ("{method} {header.user-agent}", "GET a \"b\" é", "GET a%20%22b%22%20%C3%A9"),
        ("{client_ip}{client_port}", "unix:", "unix%3A"),
        ("{tls.version}{tls.cipher}{tls.server_name}", "", ""),
        // Braces that begin no placeholder.
        ("{\"a\": {}, {b c}}", "{\"a\": {}, {b c}}", "{\"a\": {}, {b c}}"),
        ("{{host} {{{host}}", "{host} {example.org}", "{host} {example.org}"),
        ("a{", "a{", "a{"),
        ("costs $5, $1 and $x", "costs $5, $1 and $x", "costs $5, $1 and $x"),
    ] {
        let request = request(HEAD);
        let template = parse(template);
        assert_eq!(template.expand(&request).unwrap(), text, "{template:?}");
        assert_eq!(template.expand_url(&request).unwrap(), url, "{template:?}");
    }
    for (template, url) in [
        ("/a?{query}", "/a"),
        ("/a?b=c&{query}", "/a?b=c"),
        ("/a?{query}&b", "/a?&b"),
        ("/a{query}", "/a"),
    ] {
        for head in ["GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x? HTTP/1.1\r\nHost: a\r\n\r\n"] {
            assert_eq!(parse(template).expand_url(&request(head)).unwrap(), url, "{template}");
        }
    }
    let time = parse("{time}").expand(&request(HEAD)).unwrap();
    assert_eq!((time.len(), &time[10..11]), (20, "T"), "{time}");
}

#[test]
fn rest_and_path_depend_on_the_mount() {
    for (bytes, rest) in [(0, "/a/b"), (2, "/b"), (4, "/")] {
        let mut request = request("GET /a/b HTTP/1.1\r\nHost: a\r\n\r\n");
        request.take_prefix(bytes);
        assert_eq!(parse("{rest} {path}").expand(&request).unwrap(), format!("{rest} /a/b"));
    }
}

#[test]
fn finds_target_and_port() {
    for (head, expected) in [
        ("GET http://b:81/x//y?z HTTP/1.1\r\nHost: a", "/x//y?z 81"),
        ("GET http://b?z HTTP/1.1\r\nHost: a", "?z 80"),
        ("GET http://b HTTP/1.1\r\nHost: a", "/ 80"),
        ("GET /?a=http://b/c HTTP/1.1\r\nHost: [::1]", "/?a=http://b/c 80"),
        ("GET / HTTP/1.1\r\nHost: [::1]:82", "/ 82"),
        ("GET / HTTP/1.0", "/ 80"),
    ] {
        let request = request(format!("{head}\r\n\r\n"));
        assert_eq!(parse("{uri} {port}").expand(&request).unwrap(), expected, "{head}");
    }
}

#[test]
fn bounds_the_length_of_values() {
    let head = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(MAX_VALUE_BYTES / 2 - 1));
    let request = request(head);
    let literal = "x".repeat(MAX_VALUE_BYTES);
    assert!(parse(&format!("{literal}{{path}}{{path}}")).expand(&request).is_ok());
    assert_eq!(parse("{path}{path}{method}").expand(&request), Err(ExpansionError::TooLong));
}

#[test]
fn reports_unknown_names_with_a_suggestion() {
    for (template, expected) in [
        ("{hosst}", "unknown placeholder {hosst}; did you mean {host}?"),
        ("{remote_addr}", "unknown placeholder {remote_addr}; did you mean {client_ip}?"),
        ("{request_uri}", "unknown placeholder {request_uri}; did you mean {uri}?"),
        ("{http_user_agent}", "did you mean {header.user-agent}?"),
        ("{headers.X-A}", "unknown placeholder {headers.X-A}; did you mean {header.X-A}?"),
        ("{tls.versoin}", "did you mean {tls.version}?"),
        ("{query.}", "unknown placeholder {query.}"),
        ("{nothing}", "{{nothing} stands for the text {nothing}"),
        ("{1}", "unknown placeholder {1}; did you mean {re.1}?"),
        ("{re.}", "unknown placeholder {re.}"),
        ("{header.}", "{header.}: expected the name of a field"),
        ("{env.A}", "{env.A}: environment variables are replaced in files only"),
    ] {
        let message = Template::parse(template).unwrap_err();
        assert!(message.contains(expected), "{template}: {message}");
    }
}

#[test]
fn finds_variables_of_nginx() {
    for (text, expected) in [
        ("https://$host/", Some(("host", "host"))),
        ("a${request_uri}b", Some(("request_uri", "uri"))),
        ("$1 $http_x_a", Some(("http_x_a", "header.x-a"))),
        ("$arg_id", Some(("arg_id", "query.id"))),
        ("$hostname costs $5 $", None),
    ] {
        let found = nginx_variable(text);
        let found = found.as_ref().map(|(variable, placeholder)| (*variable, &**placeholder));
        assert_eq!(found, expected, "{text}");
    }
}
