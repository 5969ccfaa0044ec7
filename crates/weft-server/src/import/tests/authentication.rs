//! `auth_request`.

use super::*;

#[test]
fn authentication_servers_may_be_constants() {
    const URL: &str = "http://127.0.0.1:9091";
    for (auth, expected) in [
        (format!("proxy_pass {URL};"), Some("/authelia")),
        (format!("proxy_pass {URL}/api/verify;"), Some("/api/verify")),
        (format!("set $up {URL}; proxy_pass $up;"), Some("/authelia")),
        (format!("set $up {URL}/api/verify; proxy_pass $up;"), Some("/api/verify")),
        (format!("set $up http://none; set $up {URL}; proxy_pass $up/api/;"), Some("/api/")),
        // A value of a request.
        ("set $up http://$http_x; proxy_pass $up;".to_owned(), None),
        (format!("set $up {URL}; if ($cookie_a) {{ set $up http://b; }} proxy_pass $up;"), None),
        // A group of servers.
        ("set $up http://g; proxy_pass $up;".to_owned(), None),
    ] {
        let Imported { text, is_complete } = imported(&format!(
            "upstream g {{ server 127.0.0.1:1; }}\n\
             server {{ listen 80; root /a; auth_request /authelia;\n\
             location /authelia {{ internal; auth_request off; {auth} }} }}"
        ));
        let refused = text.contains("the access rules could not be imported");
        assert_eq!(refused, expected.is_none(), "{auth}\n{text}");
        assert_eq!(is_complete, expected.is_some(), "{auth}\n{text}");
        if let Some(path) = expected {
            let option = format!("forward_auth = \"{URL}{path}\"");
            assert!(text.contains(&option), "{auth}\n{text}");
        }
    }
}
