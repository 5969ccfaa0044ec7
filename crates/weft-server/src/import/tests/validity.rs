//! Values that Weft does not accept are dropped, or close their route.

use super::*;

const CLOSED: &str = "{ respond = \"this route could not be imported\\n\", status = 403 }\n";

#[test]
fn options_that_are_invalid_and_harmless_are_dropped() {
    for (directives, dropped, expected) in [
        ("root /a; proxy_hide_header Date;", "", "\"/\" = \"-> /a\"\n"),
        (
            "location / { proxy_pass http://127.0.0.1:3000; proxy_set_header Host $host;\n\
             proxy_hide_header Date; proxy_hide_header X-A; }",
            "# `remove_response_headers = \"Date\"`: not carried over: ",
            "remove_response_headers = [\"X-A\"]\n\"/\" = \">> http://127.0.0.1:3000/\"\n",
        ),
        (
            "root /a; add_header \"X A\" b; add_header X-B c; location /d/ { return 204; }",
            "# `response_headers.\"X A\" = \"b\"`: not carried over: ",
            "response_headers = { X-B = \"c\" }\n\
             \"/d/\" = { respond = \"\", status = 204 }\n\"/\" = \"-> /a\"\n",
        ),
        (
            "root /a; add_header X-A \"b\nc\"; add_header X-B c;",
            "# `response_headers.\"X-A\" = \"b\\nc\"`: not carried over: ",
            "response_headers = { X-B = \"c\" }\n\"/\" = \"-> /a\"\n",
        ),
    ] {
        let (found, is_complete) = host(directives);
        assert!(found.contains(dropped), "{directives}\n{found}");
        let (notes, others): (Vec<&str>, Vec<&str>) =
            found.lines().partition(|line| line.starts_with('#'));
        assert_eq!(others, expected.lines().collect::<Vec<_>>(), "{directives}\n{notes:?}");
        assert_eq!(is_complete, dropped.is_empty(), "{directives}\n{found}");
    }
}

#[test]
fn routes_with_invalid_values_are_closed() {
    for (invalid, valid) in [
        ("return 302 //b.org/;", "return 302 https://b.org/;"),
        ("return 301 \"/a b\";", "return 301 /a%20b;"),
        ("return 307 https://$http_x/;", "return 307 https://$host/;"),
        ("root /a; sub_filter '' b;", "root /a; sub_filter c b;"),
        ("proxy_pass http://user@h/;", "proxy_pass http://h/;"),
        ("proxy_pass \"http://unix:/run/a b:/\";", "proxy_pass http://unix:/run/a:/;"),
    ] {
        let (found, is_complete) = host(&format!("location /x/ {{ {invalid} }} root /a;"));
        assert!(found.contains(&format!("/x/\" = {CLOSED}")), "{invalid}\n{found}");
        assert!(found.ends_with("\"/\" = \"-> /a\"\n"), "{invalid}\n{found}");
        assert!(!is_complete && found.contains("# not carried over: "), "{invalid}\n{found}");
        let (found, _) = host(&format!("location /x/ {{ {valid} }} root /a;"));
        assert!(!found.contains("status = 403"), "{valid}\n{found}");
    }
    let group = |server: &str| {
        imported(&format!(
            "upstream g {{ server {server}; }}\n\
             server {{ listen 80; location / {{ proxy_pass http://g; }} }}"
        ))
    };
    let Imported { text, is_complete } = group("\"unix:/run/a b\"");
    assert!(text.contains(&format!("\"/\" = {CLOSED}")) && !is_complete, "{text}");
    let Imported { text, is_complete } = group("unix:/run/a");
    assert!(text.contains("unix:/run/a") && is_complete, "{text}");
}

/// Imports a site of Caddy with these directives, and checks the result.
#[track_caller]
fn site(directives: &str) -> (String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Caddyfile");
    std::fs::write(&path, format!("http://a.org {{\n{directives}\n}}\n")).unwrap();
    let (Imported { text, is_complete }, _) = weft_import::caddy(&path, None, &Program).unwrap();
    assert_eq!(Program.problems(&text), [], "{directives}\n{text}");
    (text, is_complete)
}

#[test]
fn sites_with_invalid_values_are_closed() {
    const FILES: &str = "root * /srv\nfile_server";
    for (invalid, valid) in [
        ("redir /x //b/", "redir /x https://b/"),
        ("redir /x \"/a b\"", "redir /x /a%20b"),
        ("handle /x//b {\nrespond x\n}", "handle /x/b {\nrespond x\n}"),
        ("handle /x//b/* {\nrespond x\n}", "handle /x/b/* {\nrespond x\n}"),
    ] {
        let (found, is_complete) = site(&format!("{invalid}\n{FILES}"));
        assert!(found.contains("this route could not be imported"), "{invalid}\n{found}");
        assert!(found.contains("\"-> /srv\"") && !is_complete, "{invalid}\n{found}");
        let (found, is_complete) = site(&format!("{valid}\n{FILES}"));
        assert!(!found.contains("could not") && is_complete, "{valid}\n{found}");
    }
    let (found, is_complete) = site(&format!("header \"X A\" b\nheader X-B c\n{FILES}"));
    let note = "# `response_headers.\"X A\" = \"b\"`: not carried over: ";
    assert!(found.contains(note) && !is_complete, "{found}");
    assert!(found.contains("response_headers = { X-B = \"c\" }\n"), "{found}");
    assert!(found.ends_with("\"/\" = \"-> /srv\"\n"), "{found}");
}

/// A text that the program does not accept is no complete result.
#[test]
fn results_that_are_invalid_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nginx.conf");
    for (text, is_valid) in [
        ("server { listen 81; root /a; }", true),
        ("server { listen \"a b:81\"; root /a; }", false),
        ("worker_processes 2; http { server { root /a; } }", true),
        ("worker_processes 99999; http { server { root /a; } }", false),
        ("server { server_name \"~(\"; root /a; }", false),
        ("stream { server { listen 81; proxy_pass a:1; } }", true),
        ("stream { server { listen 81; proxy_pass \"a b\"; } }", false),
    ] {
        std::fs::write(&path, text).unwrap();
        let Imported { text: found, is_complete } = weft_import::nginx(&path, &Program).unwrap();
        assert_eq!(Program.problems(&found).is_empty(), is_valid, "{text}\n{found}");
        assert_eq!(is_complete, is_valid, "{text}\n{found}");
        let says_so = found.starts_with("# This configuration is not valid until");
        assert_eq!(says_so, !is_valid, "{text}\n{found}");
    }
}
