//! Directives of nginx, Caddy and Apache where a key of Weft is expected, and the lines of Weft in
//! their place. Pure.

use weft_config::{Name, Problem};

/// Directives, each with its server, the section of the line in Weft, and the line. A `*` is the
/// section of a host, and a line without a section stands in several.
const DIRECTIVES: [(&str, &str, &str, &str); 47] = [
    ("proxy_pass", "nginx", "*", "\"/\" = \">> http://127.0.0.1:3000\""),
    ("reverse_proxy", "Caddy", "*", "\"/\" = \">> http://127.0.0.1:3000\""),
    ("ProxyPass", "Apache", "*", "\"/\" = \">> http://127.0.0.1:3000\""),
    (
        "health_uri",
        "Caddy",
        "*",
        "\"/\" = { proxy = \"http://127.0.0.1:3000\", check = \"/health\" }",
    ),
    ("upstream", "nginx", "*", "\"/\" = \">> http://10.0.0.1:3000 http://10.0.0.2:3000\""),
    ("root", "nginx and Caddy", "*", "\"/\" = \"-> /srv/www\""),
    ("alias", "nginx", "*", "\"/\" = \"-> /srv/www\""),
    ("file_server", "Caddy", "*", "\"/\" = \"-> /srv/www\""),
    ("DocumentRoot", "Apache", "*", "\"/\" = \"-> /srv/www\""),
    ("location", "nginx", "*", "\"/app/\" = \"-> /srv/app\""),
    ("handle", "Caddy", "*", "\"/app/\" = \"-> /srv/app\""),
    ("handle_path", "Caddy", "*", "\"/app/\" = \"-> /srv/app\""),
    ("route", "Caddy", "*", "\"/app/\" = \"-> /srv/app\""),
    ("redir", "Caddy", "*", "\"/old/\" = \"<< https://example.org/new/\""),
    (
        "fastcgi_pass",
        "nginx",
        "*",
        "\"/\" = { files = \"/srv/www\", php = \"unix:/run/php/php-fpm.sock\" }",
    ),
    (
        "php_fastcgi",
        "Caddy",
        "*",
        "\"/\" = { files = \"/srv/www\", php = \"unix:/run/php/php-fpm.sock\" }",
    ),
    ("encode", "Caddy", "defaults", "compress = true"),
    ("gzip", "nginx", "defaults", "compress = true"),
    ("brotli", "nginx", "defaults", "compress = true"),
    ("gzip_static", "nginx", "defaults", "compress = true"),
    ("header", "Caddy", "defaults", "response_headers = { X-Name = \"value\" }"),
    ("add_header", "nginx", "defaults", "response_headers = { X-Name = \"value\" }"),
    ("proxy_set_header", "nginx", "defaults", "request_headers = { X-Name = \"value\" }"),
    ("header_up", "Caddy", "defaults", "request_headers = { X-Name = \"value\" }"),
    ("request_header", "Caddy", "defaults", "request_headers = { X-Name = \"value\" }"),
    ("auth_basic", "nginx", "defaults", "basic_auth = \"/etc/weft/users\""),
    ("auth_basic_user_file", "nginx", "defaults", "basic_auth = \"/etc/weft/users\""),
    ("basicauth", "Caddy", "defaults", "basic_auth = \"/etc/weft/users\""),
    ("client_max_body_size", "nginx", "limits", "max_body_bytes = \"64MiB\""),
    ("request_body", "Caddy", "limits", "max_body_bytes = \"64MiB\""),
    ("keepalive_timeout", "nginx", "limits", "idle_timeout = \"60s\""),
    ("client_header_timeout", "nginx", "limits", "head_timeout = \"20s\""),
    ("worker_connections", "nginx", "limits", "max_connections = 16384"),
    ("limit_req", "nginx", "defaults", "rate = \"10/s\""),
    ("rate_limit", "Caddy", "defaults", "rate = \"10/s\""),
    ("autoindex", "nginx", "files", "list = true"),
    ("browse", "Caddy", "files", "list = true"),
    ("expires", "nginx", "files", "cache = { \"*\" = \"1h\" }"),
    ("error_page", "nginx", "defaults", "error_pages = { 404 = \"/srv/404.html\" }"),
    ("error_log", "nginx", "log", "error = \"/var/log/weft/error.log\""),
    ("access_log", "nginx", "log", "access = \"/var/log/weft/access.log\""),
    ("log_format", "nginx", "log", "format = \"combined\""),
    ("worker_processes", "nginx", "", "workers = 4"),
    ("set_real_ip_from", "nginx", "", "trusted_proxies = [\"10.0.0.0/8\"]"),
    ("ssl_certificate", "nginx", "tls", "certificates = [{ cert = \"a.crt\", key = \"a.key\" }]"),
    (
        "ssl_certificate_key",
        "nginx",
        "tls",
        "certificates = [{ cert = \"a.crt\", key = \"a.key\" }]",
    ),
    ("port", "other servers", "", "listen = [\":80\"]"),
];

/// Advice about `return`, which is a redirect or a response.
const RETURN: &str = "`return` of nginx is `\"/old/\" = \"<< https://example.org/new/\"`, or with \
                      another status `\"/old/\" = { respond = \"\", status = 404 }`, in the section \
                      of a host";

/// Directives whose equivalent is a section.
const SECTIONS: [(&str, &str); 5] = [
    ("server", "nginx"),
    ("server_name", "nginx"),
    ("http", "nginx"),
    ("VirtualHost", "Apache"),
    ("ServerName", "Apache"),
];

/// Sections of routes in other servers.
const ROUTES: [&str; 4] = ["routes", "route_config", "locations", "paths"];

/// Returns the advice about routes outside of the section of a host.
fn advice_on_routes(name: &str) -> Option<String> {
    let subject = match name {
        _ if ROUTES.contains(&name) => "routes are keys in the section of a host".to_owned(),
        _ if name.starts_with('/') => {
            format!("`{name}` is a path, whose route is a key in the section of a host")
        }
        _ => return None,
    };
    Some(format!("{subject}: [hosts.\"*\"], and below it `\"/\" = \"-> /srv/www\"`"))
}

/// Returns the advice about a port in place of a list of texts.
fn advice_on_port(message: &str) -> Option<String> {
    let (expected, number) = message.split_once(", found the number ")?;
    let port = number.parse::<u16>().ok().filter(|port| *port > 0)?;
    let is_list = expected.starts_with("expected a list of texts");
    is_list.then(|| format!("a port to listen on is a text with a colon: \":{port}\""))
}

/// Returns the line of Weft in place of a directive of another server.
pub(super) fn advice(directive: &str) -> Option<String> {
    if let Some((_, server)) = SECTIONS.iter().find(|(known, _)| *known == directive) {
        return Some(format!(
            "`{directive}` of {server} is a section for each host: [hosts.\"example.org\"]"
        ));
    }
    if directive == "return" {
        return Some(RETURN.to_owned());
    }
    let known = DIRECTIVES.iter().find(|(known, ..)| *known == directive)?;
    let (_, server, section, line) = known;
    let place = match *section {
        "*" => " in the section of a host".to_owned(),
        "" => " at the top of the file".to_owned(),
        "defaults" => " in a route, a host or [defaults]".to_owned(),
        section => format!(" in [{section}]"),
    };
    Some(format!("`{directive}` of {server} is `{line}`{place}"))
}

/// Returns the problem of a directive of another server as a key.
pub(super) fn foreign_key(name: &Name) -> Option<Problem> {
    let advice = advice(&name.value)?;
    Some(name.problem(format!("unknown key `{}`; {advice}", name.value)))
}

/// Returns the advice about a text that begins with a directive of another server.
pub(super) fn advice_on_text(text: &str) -> Option<String> {
    advice(text.split_whitespace().next()?)
}

/// Names the lines of Weft in problems with unknown keys. The readers of sections and of forms know
/// no other server.
pub(super) fn name_directives(problems: &mut [Problem]) {
    for problem in problems {
        if let Some(advice) = advice_on_port(&problem.message) {
            problem.message = format!("{}; {advice}", problem.message);
        }
        let name = problem.message.strip_prefix("unknown key `");
        let name = name.and_then(|rest| rest.split_once("`; "));
        // A section with listeners of its own needs no line at the top of the file.
        let name = name.filter(|(name, known)| {
            *name != "port" || !known.contains("`listen`") || known.contains("`include`")
        });
        let advised = name
            .and_then(|(name, _)| Some((name, advice(name).or_else(|| advice_on_routes(name))?)));
        if let Some((name, advice)) = advised {
            problem.message = format!("unknown key `{name}`; {advice}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_config::Sources;

    use super::*;
    use crate::config::Config;

    fn problems(text: &str) -> Vec<String> {
        let config = Config::parse(&Sources::of_text("f", text.to_owned(), Path::new("")));
        config.problems.iter().map(|problem| problem.message.clone()).collect()
    }

    /// The lines that messages recommend are valid, in the section that they name.
    #[test]
    fn recommended_lines_are_valid() {
        for (directive, _, section, line) in DIRECTIVES {
            let text = match section {
                "*" => format!("[hosts.a]\n{line}\n"),
                "" => format!("{line}\n"),
                section => format!("[{section}]\n{line}\n"),
            };
            assert_eq!(problems(&text), [""; 0], "{directive}");
        }
    }

    /// Each directive is named wherever a key may be, unless the key of the same name exists there.
    #[test]
    fn directives_are_named_in_every_section() {
        for directive in DIRECTIVES.iter().map(|row| row.0).chain(SECTIONS.map(|row| row.0)) {
            let advice = advice(directive).unwrap();
            for before in [
                "",
                "[limits]\n",
                "[tls]\n",
                "[log]\n",
                "[hosts.a]\n\"/\" = { files = \".\" }\n",
                "[hosts.a]\n\"/\" = { files = \".\", ",
                "[hosts.a]\n\"/\" = { ",
            ] {
                let after = if before.ends_with([' ', ',']) { " }\n" } else { "\n" };
                let text = format!("{before}{directive} = \"x\"{after}");
                let is_key = problems(&text).iter().all(|it| !it.contains("unknown key"));
                let is_named = problems(&text).iter().any(|it| it.contains(&advice));
                let has_key = match directive {
                    "access_log" => before.contains("hosts"),
                    "server_name" => before.contains("limits"),
                    // The known keys are named.
                    "port" => before.contains("[tls]"),
                    _ => false,
                };
                assert!(
                    is_named || (is_key || directive == "port") && has_key,
                    "{text}: {:?}",
                    problems(&text)
                );
            }
        }
        let text = "[hosts.a]\n\"/\" = \"reverse_proxy localhost:3000\"\n";
        assert!(problems(text)[0].contains("`reverse_proxy` of Caddy is"), "{:?}", problems(text));
    }

    /// Rows: a text, and the end of its message; without one it is valid.
    #[test]
    fn values_of_other_servers_are_named() {
        let route = "[hosts.a]\n\"/\" = { respond = \"\", status = 404 }\n";
        let below = "routes are keys in the section of a host: [hosts.\"*\"], and below it \
                     `\"/\" = \"-> /srv/www\"`";
        for (text, end) in [
            (route, ""),
            ("listen = 80\n", "a port to listen on is a text with a colon: \":80\""),
            ("tls.listen = 443\n", "a port to listen on is a text with a colon: \":443\""),
            ("listen = 70000\n", "found the number 70000"),
            ("listen = [\"80\"]\n", "port 80 of all addresses is `:80`"),
            ("listen = [\":80\"]\n", ""),
            ("[routes]\n\"/\" = \"-> .\"\n", below),
            ("\"/\" = \"-> .\"\n", "and below it `\"/\" = \"-> /srv/www\"`"),
            ("[hosts.a]\n\"/\" = { return = 404 }\n", RETURN),
            (
                "log.format = \"$remote_addr $status\"\n",
                "; a value is in braces, and $remote_addr of nginx is {client_ip}",
            ),
            ("log.format = \"{client_ip} {status}\"\n", ""),
        ] {
            let found = problems(text);
            let is_expected = match end {
                "" => found.is_empty(),
                _ => found.len() == 1 && found[0].ends_with(end),
            };
            assert!(is_expected, "{text}: {found:?}");
        }
    }

    #[test]
    fn other_keys_have_no_advice() {
        for key in ["listen", "files", "proxy", "proxies", "roots", ""] {
            assert_eq!(advice(key), None, "{key}");
        }
    }
}
