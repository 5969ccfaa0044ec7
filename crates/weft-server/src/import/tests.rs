//! Imported configurations. Each result is a valid configuration.

mod authentication; // `auth_request`
mod caches; // `proxy_cache` and `fastcgi_cache`
mod closed; // directives without an equivalent
mod configurations; // `tests/import`
mod streams; // `stream` blocks
mod validity; // values that Weft does not accept

use weft_import::Imported;

use super::*;

/// Imports a text, and checks the result.
#[track_caller]
fn imported(text: &str) -> Imported {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nginx.conf");
    std::fs::write(&path, text).unwrap();
    let imported = weft_import::nginx(&path, &Program).unwrap();
    let sources = Sources::of_text("weft.toml", imported.text.clone(), Path::new("/"));
    let config = Config::parse(&sources);
    assert_eq!(config.problems, [], "{text}\n{}", imported.text);
    let plan = Plan::new(config);
    assert!(plan.is_ok(), "{text}\n{}\n{:?}", imported.text, plan.err());
    imported
}

/// Imports a server with these directives, and returns the part behind the name of its host.
#[track_caller]
fn host(directives: &str) -> (String, bool) {
    let text = format!("server {{\nlisten 80; server_name a.example;\n{directives}\n}}\n");
    let Imported { text, is_complete } = imported(&text);
    let (before, host) = text.split_once("[hosts.\"a.example *\"]\n").expect("a host");
    let notes = before.lines().filter(|line| line.starts_with('#'));
    let notes: String = notes.map(|line| format!("{line}\n")).collect();
    (notes + host, is_complete)
}

#[track_caller]
fn check(cases: &[(&str, bool, &str)]) {
    for (directives, is_complete, expected) in cases {
        let found = host(directives);
        assert_eq!((&*found.0, found.1), (*expected, *is_complete), "{directives}");
    }
}

#[test]
fn imports_files() {
    check(&[
        ("root /srv/a;", true, "\"/\" = \"-> /srv/a\"\n"),
        (
            "root /srv/a/; location /b/ { }",
            true,
            "\"/b/\" = \"-> /srv/a/b\"\n\"/\" = \"-> /srv/a\"\n",
        ),
        ("location /b/ { alias /srv/c/; }", true, "\"/b/\" = \"-> /srv/c\"\n"),
        ("location /b/ { empty_gif; }", true, "\"/b/\" = { empty_gif = true }\n"),
        (
            "location / { root /a; index a.html index.htm; autoindex on; gzip off; }",
            true,
            "compress = false\n\
             \"/\" = { files = \"/a\", index = [\"a.html\", \"index.htm\"], list = true }\n",
        ),
        (
            "location /b { alias /a; try_files $uri $uri/ /b/index.html; expires max; }",
            true,
            "\"/b\" = { files = \"/a\", fallback = \"index.html\", cache = \"max-age=315360000\" }\n",
        ),
        (
            "location /b { alias /a; try_files $uri /b/index.html; }",
            true,
            "\"/b\" = { files = \"/a\", index = [], try_files = [\"{path}\", \"/b/index.html\"] }\n",
        ),
        // Folders are not found without `$uri/`.
        (
            "location / { root /a; try_files $uri =404; }",
            true,
            "\"/\" = { files = \"/a\", index = [] }\n",
        ),
        ("location / { root /a; try_files $uri $uri/ =404; }", true, "\"/\" = \"-> /a\"\n"),
        (
            "location / { root /a; try_files $uri $uri.html $uri/ @app; }\n\
             location @app { proxy_pass http://127.0.0.1:3000; }",
            true,
            "\"/\" = { files = \"/a\", try_files = [\"{path}\", \"{path}.html\", \"{path}/\", \
             \"@app\"] }\n\"@app\" = { proxy = \"http://127.0.0.1:3000/\", host = \"upstream\" }\n",
        ),
        (
            "location / { root /a; try_files $uri @none; }",
            false,
            "# nginx.conf:3: `try_files $uri @none`: not carried over: there is no location of this \
             name\n\"/\" = { files = \"/a\", index = [] }\n",
        ),
        (
            "location /b/ { alias /a; }",
            false,
            "# nginx.conf:3: `alias /a`: not carried over: the rest of the path would be joined \
             without a slash\n\"/b/\" = { respond = \"this location could not be imported\\n\", \
             status = 501 }\n",
        ),
    ]);
}

/// The fields of a server are not lost where the import responds in its place.
#[test]
fn redirects_and_refusals_have_the_fields_of_their_location() {
    let fields = "add_header X-A b always;";
    for (directives, expected) in [
        ("rewrite ^/old/(.*)$ /new/$1 permanent; root /a;", "<< /new/{re.1}"),
        ("location / { stub_status; }", "status = 501"),
        ("location / { root /a; if ($body_bytes_sent) { return 403; } }", "status = 403"),
    ] {
        let (with, _) = host(&format!("{fields} {directives}"));
        let (without, _) = host(directives);
        let field = "X-A = \"b\"";
        assert!(with.contains(expected) && with.contains(field), "{with}");
        assert!(without.contains(expected) && !without.contains(field), "{without}");
    }
}

/// `$host` has no port, which clients send if it is not the usual one; `$http_host` has it.
#[test]
fn upstreams_get_the_host_without_its_port() {
    for (listen, host, expected) in [
        ("8080", "$host", "request_headers = { Host = \"{host}\" }"),
        ("80", "$host", "\"/\" = \">> http://127.0.0.1:3000/\""),
        ("8080", "$http_host", "\"/\" = \">> http://127.0.0.1:3000/\""),
        ("80", "a.org; proxy_set_header X-Host $http_host", "X-Host = \"{header.Host}\""),
    ] {
        let location = format!(
            "location / {{ proxy_pass http://127.0.0.1:3000; proxy_set_header Host {host}; }}"
        );
        let server =
            format!("server {{\nlisten {listen}; server_name a.example;\n{location}\n}}\n");
        let text = imported(&server).text;
        assert!(text.contains(expected), "{listen} {host}: {text}");
    }
}

/// nginx ignores the case of a parameter's name, but not the value `0`.
#[test]
fn conditions_about_parameters_ignore_case() {
    let (text, is_complete) = host("root /a; location / { if ($arg_debug) { return 403; } }");
    let condition = "when = { value = { \"{query}\" = \"~ (?i)(?:^|&)debug=(?:[^0&]|0[^&])\" } }";
    assert!(text.contains(condition) && is_complete, "{text}");
}

/// The page of a folder and the last path of `try_files` have the options of their own locations.
#[test]
fn indexes_and_fallbacks_have_the_rules_of_their_paths() {
    let page = "root /a; location / { try_files $uri $uri/ /index.html; }";
    check(&[
        (page, true, "\"/\" = { files = \"/a\", fallback = \"index.html\" }\n"),
        (
            &format!("{page} location = /index.html {{ add_header Cache-Control no-store; }}"),
            true,
            "\"/\" = { files = \"/a\", try_files = [\"{path}\", \"{path}/\", \"/index.html\"] }\n\
             \"= /index.html\" = { files = \"/a\", cache = \"no-store\" }\n\
             \"= /\" = { rewrite = \"/index.html\" }\n",
        ),
        (
            "root /a; location / { } location ~ \\.html$ { deny all; }",
            false,
            "# nginx.conf:3: `location ~ \\.html$`: not carried over: no index index.html, because \
             this location has its paths\n\
             \"/\" = { files = \"/a\", index = [] }\n\"~ \\\\.html$\" = { respond = \"\", status = 403 }\n\
             \"= /\" = { rewrite = \"/index.html\" }\n",
        ),
        (
            "root /a; location / { } location ~ \\.htm$ { deny all; }",
            true,
            "\"/\" = \"-> /a\"\n\"~ \\\\.htm$\" = { respond = \"\", status = 403 }\n",
        ),
    ]);
}

#[test]
fn resolves_inheritance_and_moves_common_options_outward() {
    check(&[
        // The fields of a server do not apply to locations with fields of their own.
        (
            "add_header X-A a; add_header X-B b; location / { root /a; }\n\
             location /c/ { root /a; add_header X-C c; }",
            true,
            "\"/\" = { files = \"/a\", response_headers = { X-A = \"a\", X-B = \"b\" } }\n\
             \"/c/\" = { files = \"/a/c\", response_headers = { X-C = \"c\" } }\n",
        ),
        (
            "add_header X-A a; allow 10.0.0.0/8; deny all;\n\
             location / { root /a; } location /c/ { root /a; location /c/d/ { allow all; } }",
            true,
            "response_headers = { X-A = \"a\" }\n\
             \"/\" = { files = \"/a\", allow = [\"10.0.0.0/8\"] }\n\
             \"/c/d/\" = \"-> /a/c/d\"\n\
             \"/c/\" = { files = \"/a/c\", allow = [\"10.0.0.0/8\"] }\n",
        ),
        (
            "client_max_body_size 8m; location / { root /a; } location /b/ { root /a; }",
            true,
            "max_body_bytes = \"8MiB\"\n\"/\" = \"-> /a\"\n\"/b/\" = \"-> /a/b\"\n",
        ),
    ]);
}

#[test]
fn imports_proxies() {
    check(&[
        (
            "location / { proxy_pass http://127.0.0.1:3000; proxy_set_header Host $host; }",
            true,
            "\"/\" = \">> http://127.0.0.1:3000/\"\n",
        ),
        (
            "location /a/ { proxy_pass http://h/b/; }",
            true,
            "\"/a/\" = { proxy = \"http://h/b/\", host = \"upstream\" }\n",
        ),
        (
            "location /a/ { proxy_pass http://unix:/run/a.sock; proxy_buffering off;\n\
             proxy_set_header Host $host; proxy_set_header X-A b; proxy_set_header X-B \"\";\n\
             proxy_read_timeout 5m; gzip on; }",
            true,
            "request_headers = { X-A = \"b\" }\nremove_request_headers = [\"X-B\"]\n\
             compress = true\n\
             \"/a/\" = { proxy = \"unix:/run/a.sock:/a/\", buffer_responses = false, \
             response_timeout = \"5m\", body_timeout = \"5m\", tunnel_timeout = \"5m\" }\n",
        ),
        (
            "location /a/ { proxy_pass http://$backend; }",
            false,
            "# nginx.conf:3: `proxy_pass http://$backend`: not carried over: its URL has \
             variables\n\"/a/\" = { respond = \"this location could not be imported\\n\", \
             status = 501 }\n",
        ),
    ]);
}

#[test]
fn imports_rules_about_access_or_refuses() {
    const REFUSED: &str =
        "{ respond = \"the access rules could not be imported\\n\", status = 403 }\n";
    let rules = |rules: &str| host(&format!("location / {{ root /a; {rules} }}"));
    let options = |expected: &str| format!("{expected}\n\"/\" = \"-> /a\"\n");
    for (text, expected) in [
        ("allow 10.0.0.0/8; allow ::1; deny all;", "allow = [\"10.0.0.0/8\", \"::1\"]"),
        ("deny 10.0.0.0/8;", "deny = [\"10.0.0.0/8\"]"),
        ("deny 10.0.0.0/8; allow all;", "deny = [\"10.0.0.0/8\"]"),
        ("deny ::1; deny all;", "deny = [\"0.0.0.0/0\", \"::/0\"]"),
        (
            "deny 10.1.0.0/16; allow 10.0.0.0/8; deny all;",
            "allow = [\"10.0.0.0/8\"]\ndeny = [\"10.1.0.0/16\"]",
        ),
        // The exception of an exception is not needed, as all others are refused.
        ("allow 10.1.0.0/16; deny 10.0.0.0/8; deny all;", "allow = [\"10.1.0.0/16\"]"),
        (
            "auth_basic \"A b\"; auth_basic_user_file /none/users;",
            "basic_auth = \"/none/users\"\nrealm = \"A b\"",
        ),
        ("auth_basic off; auth_basic_user_file /none/users;", ""),
        (
            "valid_referers none blocked server_names *.b.example; if ($invalid_referer) { return 403; }",
            "referers = [\"*.b.example\", \"a.example\"]",
        ),
    ] {
        let expected =
            if expected.is_empty() { options("")[1..].to_owned() } else { options(expected) };
        assert_eq!(rules(text), (expected, true), "{text}");
    }
    for text in [
        "allow 10.1.0.0/16; deny 10.0.0.0/8; allow all;",
        "allow 10.1.0.0/16; deny 10.1.2.0/24; allow 10.0.0.0/8; deny all;",
        "deny x;",
        "allow unix:; deny all;",
        "auth_basic a;",
        "auth_request /auth;",
        "auth_jwt a;",
        "limit_except GET { allow 10.0.0.0/8; deny all; }",
        "valid_referers blocked server_names; if ($invalid_referer) { return 403; }",
        "if ($pipe ~ bot) { return 403; }",
        "secure_link $arg_md5;",
    ] {
        let (found, is_complete) = rules(text);
        assert!(found.ends_with(&format!("\"/\" = {REFUSED}")), "{text}\n{found}");
        assert!(!is_complete && found.contains("not carried over"), "{text}\n{found}");
    }
    // A condition that refuses nothing does not.
    let (found, is_complete) = rules("if ($pipe) { add_header X-A b; }");
    assert!(found.ends_with("\"/\" = \"-> /a\"\n") && !is_complete, "{found}");
}

#[test]
fn imports_exact_paths_and_regular_expressions() {
    check(&[
        (
            "root /a; location = /b { return 301 /c; } location ~ ^/d/(.+)$ { return 302 /e/$1; }",
            true,
            "\"= /b\" = \"<< /c?\"\n\
             \"~ ^/d/(.+)$\" = { redirect = \"/e/{re.1}\", status = 302 }\n\"/\" = \"-> /a\"\n",
        ),
        // A target without the rest of the path.
        (
            "root /a; location /old/ { return 301 https://b.example/; }",
            true,
            "\"~ ^/old/\" = \"<< https://b.example/?\"\n\"/\" = \"-> /a\"\n",
        ),
        // Nested expressions are for the paths of the outer location, and come before others.
        (
            "root /a; location ~ \\.js$ { expires 1h; } location /b/ { location ~ \\.js$ { } }",
            true,
            "\"~ ^/b(?:/.*)?(?:\\\\.js$)\" = \"-> /a\"\n\
             \"~ \\\\.js$\" = { files = \"/a\", cache = \"max-age=3600\" }\n\
             \"/b/\" = \"-> /a/b\"\n\"/\" = \"-> /a\"\n",
        ),
        // A preferred prefix comes before expressions.
        (
            "root /a; location ~ \\.js$ { return 404; } location ^~ /b/ { }",
            true,
            "\"~ ^/b/\" = \"-> /a\"\n\"~ \\\\.js$\" = { respond = \"\", status = 404 }\n\
             \"/\" = \"-> /a\"\n",
        ),
        (
            "root /a; if ($request_method !~ ^(GET|HEAD|POST)$) { return 405; }",
            true,
            "\"GET,POST /\" = \"-> /a\"\n",
        ),
    ]);
    // An expression without an equivalent that would lead paths elsewhere.
    let (found, is_complete) = host("root /a; location ~ (?<!b)c { deny all; }");
    assert!(found.contains("\"/\" = { respond = \"the access rules could not") && !is_complete);
    let (found, is_complete) = host("root /a; location ~ (?<!b)c { expires 1h; }");
    assert!(found.ends_with("\"/\" = \"-> /a\"\n") && !is_complete, "{found}");
    // Paths that begin with the name of a location that restricts access.
    let (found, _) = host("root /a; location /b { deny all; }");
    let refused = "\"~ ^/b[^/]\" = { respond = \"\", status = 403 }\n";
    assert!(found.ends_with(refused), "{found}");
    for (directives, key, table) in [
        ("return 503;", "~ ^/b[^/]", "respond = \"\", status = 503"),
        ("limit_except GET { deny all; }", "GET ~ ^/b[^/]", "files = \"/a\""),
        (
            "if ($request_method = DELETE) { return 405; }",
            "DELETE ~ ^/b[^/]",
            "respond = \"\", status = 405",
        ),
        (
            "valid_referers a.org; if ($invalid_referer) { return 403; }",
            "~ ^/b[^/]",
            "respond = \"\", status = 403",
        ),
        ("client_max_body_size 1k;", "~ ^/b[^/]", "files = \"/a\", max_body_bytes = \"1KiB\""),
        (
            "return 503; } location /bc/ { root /a;",
            "~ ^/b(?:[^/c]|c[^/])",
            "respond = \"\", status = 503",
        ),
    ] {
        let (found, _) = host(&format!("root /a; location /b {{ {directives} }}"));
        let short = format!("\"{key}\" = \"-> /a\"\n");
        let route = format!("\"{key}\" = {{ {table} }}\n");
        let is_found =
            found.contains(&route) || table == "files = \"/a\"" && found.contains(&short);
        assert!(is_found, "{directives}\n{found}");
    }
    // A location that restricts nothing has none.
    let (found, _) = host("root /a; location /b { expires 1h; }");
    assert!(!found.contains("[^/]"), "{found}");
}

#[test]
fn imports_pages_and_rewritten_responses() {
    check(&[
        (
            "root /a; error_page 404 /404.html; error_page 500 502 =503 /50x.html;\n\
             location = /50x.html { root /b; internal; }",
            true,
            "error_pages = { 404 = \"/a/404.html\", \"500 502 =503\" = \"/b/50x.html\" }\n\
             # nginx.conf:4: `internal`: clients get 404\n\
             \"= /50x.html\" = { respond = \"\", status = 404 }\n\"/\" = \"-> /a\"\n",
        ),
        (
            "location / { proxy_pass http://h; proxy_set_header Host $host;\n\
             proxy_set_header X-Real-IP $remote_addr; add_header X-A $host; add_header X-A b;\n\
             proxy_redirect http://h/ /; proxy_cookie_path /a/ /b/; sub_filter c 'd $scheme';\n\
             sub_filter_once off; proxy_intercept_errors on; }",
            true,
            "sub_filter = { c = \"d {scheme}\" }\nsub_filter_once = false\n\
             request_headers = { X-Real-IP = \"{client_ip}\" }\n\
             response_headers = { X-A = \"{host}\", \"+X-A\" = \"b\" }\n\
             \"/\" = { proxy = \"http://h/\", rewrite_location = { \"http://h/\" = \"/\" }, \
             cookie_path = { \"/a/\" = \"/b/\" } }\n",
        ),
    ]);
    check(&[
        // A response that is no error, but leads to a named location.
        (
            "location ~ /git$ { error_page 418 = @app; return 418; }\n\
             location @app { proxy_pass http://h; proxy_buffering off; }",
            true,
            "\"~ /git$\" = { proxy = \"http://h/\", host = \"upstream\", buffer_responses = false }\n",
        ),
        (
            "root /a; error_page 404 /404.html; location / { proxy_pass http://h; }",
            true,
            "# nginx.conf:3: `error_page 404 /404.html`: the page is a file, whereas nginx requests it \
             from an upstream\n\
             error_pages = { 404 = \"/a/404.html\" }\n\"/\" = { proxy = \"http://h/\", host = \"upstream\" }\n",
        ),
    ]);
    let (found, is_complete) = host("root /a; error_page 404 @named; error_page 403 /x.php?a;");
    assert!(!is_complete && found.ends_with("\"/\" = \"-> /a\"\n"), "{found}");
    // A script is a route, and not a file whose text clients would get.
    check(&[
        (
            "root /a; error_page 404 /index.php; error_page 403 = /e/error.php?a=b;\n\
             location ~ \\.php$ { fastcgi_param SCRIPT_FILENAME $document_root$uri; fastcgi_pass h:1; }",
            true,
            "error_pages = { 404 = \"@page-index.php\", \"403 =\" = \"@page-e-error.php-a-b\" }\n\
             \"~ \\\\.php$\" = { fastcgi = \"h:1\", root = \"/a\" }\n\"/\" = \"-> /a\"\n\
             \"@page-index.php\" = { rewrite = \"/index.php\" }\n\
             \"@page-e-error.php-a-b\" = { rewrite = \"/e/error.php?a=b\" }\n",
        ),
        (
            "root /a; location / { error_page 404 = @app; } location @app { proxy_pass http://h; }",
            true,
            "\"/\" = { files = \"/a\", error_pages = { \"404 =\" = \"@app\" } }\n\
             \"@app\" = { proxy = \"http://h/\", host = \"upstream\" }\n",
        ),
    ]);
}

#[test]
fn imports_limits() {
    let text = "limit_req_zone $binary_remote_addr zone=a:1m rate=5r/s;\n\
                limit_req_zone $http_a zone=b:1m rate=5r/s;\n\
                server { location / { root /a; limit_req zone=a burst=9 nodelay; } }\n";
    let Imported { text, is_complete } = imported(text);
    // The second zone is used by no location.
    assert!(text.contains("rate = \"5/s\"\nburst = 10\n") && is_complete, "{text}");
    let text = "limit_req_zone $http_x_api_key zone=b:1m rate=5r/m;\n\
                server { location / { root /a; limit_req zone=b; limit_rate 1m; } }\n";
    let Imported { text, is_complete } = imported(text);
    for part in
        ["rate_key = \"{header.x-api-key}\"", "rate = \"5/m\"\nburst = 1\n", "bandwidth = \"1MiB\""]
    {
        assert!(text.contains(part) && is_complete, "{part}\n{text}");
    }
}

#[test]
fn joins_servers_with_and_without_tls() {
    const TLS: &str = "listen 443 ssl; ssl_certificate /a.pem; ssl_certificate_key /a.key;";
    for (text, expected) in [
        (
            format!(
                "server {{ listen 80; return 301 https://a.b$request_uri; }}\n\
                 server {{ {TLS} server_name a.b; root /a; }}"
            ),
            "# nginx.conf:1: `return 301 https://a.b$request_uri`: other hosts are redirected to \
             HTTPS of the same host\n[hosts.\"a.b *\"]\nhttps_redirect = true\n\"/\" = \"-> /a\"\n",
        ),
        // Only a redirect, for this name or for all.
        (
            format!(
                "server {{ listen 80; server_name a.b; return 301 https://$host$request_uri; }}\n\
                 server {{ {TLS} server_name a.b; root /a; }}"
            ),
            "[hosts.\"a.b *\"]\nhttps_redirect = true\n\"/\" = \"-> /a\"\n",
        ),
        (
            format!(
                "server {{ listen 80 default_server; location /.well-known/ {{ root /b; }}\n\
                 location / {{ return 301 https://$host$request_uri; }} }}\n\
                 server {{ {TLS} server_name a.b; root /a; }}"
            ),
            "[hosts.\"a.b *\"]\n\"/.well-known/ @http\" = { files = \"/b/.well-known\", \
             https_redirect = false, when = { value = { \"{scheme}\" = \"http\" } } }\n\
             \"/\" = { files = \"/a\", https_redirect = true }\n",
        ),
        (
            format!(
                "server {{ listen 80; server_name a.b;\n\
                 if ($host = a.b) {{ return 301 https://$host$request_uri; }} return 404; }}\n\
                 server {{ {TLS} server_name a.b; root /a; }}"
            ),
            "[hosts.\"a.b *\"]\nhttps_redirect = true\n\"/\" = \"-> /a\"\n",
        ),
        // The same content.
        (
            format!("server {{ listen 80; {TLS} server_name a.b; root /a; }}"),
            "[hosts.\"a.b *\"]\n\"/\" = \"-> /a\"\n",
        ),
        // TLS belongs to the address, also for a server that does not name it.
        (
            format!(
                "server {{ listen 443; server_name c; root /c; }}\n\
                 server {{ {TLS} server_name a.b; root /a; }}"
            ),
            "[hosts.\"c *\"]\n\"/\" = \"-> /c\"\n\n[hosts.\"a.b\"]\n\"/\" = \"-> /a\"\n",
        ),
        (
            format!("server {{ listen 443; {TLS} server_name a.b; root /a; }}"),
            "[tls]\nlisten = [\"0.0.0.0:443\"]\n",
        ),
        // Content for TLS only is not served without it.
        (
            format!(
                "server {{ listen 80; server_name c; root /c; }}\n\
                 server {{ {TLS} server_name a.b; root /a; }}"
            ),
            "[hosts.\"c *\"]\n\"/\" = \"-> /c\"\n\n[hosts.\"a.b *\"]\n\
             listen = [\"tls://0.0.0.0:443\"]\n\"/\" = \"-> /a\"\n",
        ),
        // Content for this machine only is not served to others.
        (
            "server { listen 80; server_name c; root /c; }\n\
             server { listen 127.0.0.1:81; server_name d; root /d; }"
                .to_owned(),
            "listen = [\"0.0.0.0:80\"]\n\n[hosts.\"c *\"]\n\"/\" = \"-> /c\"\n\n[hosts.\"d *\"]\n\
             listen = [\"127.0.0.1:81\"]\n\"/\" = \"-> /d\"\n",
        ),
        // A server without a name is a host by port.
        (
            "server { listen 80; server_name c; root /c; }\n\
             server { listen 9090; root /d; }"
                .to_owned(),
            "[hosts.\":9090\"]\nlisten = [\"0.0.0.0:9090\"]\n\"/\" = \"-> /d\"\n",
        ),
    ] {
        let imported = imported(&text);
        assert!(imported.text.contains(expected), "{text}\n{}", imported.text);
    }
}

/// Imports servers and what is beside them, and returns the lines of the result.
#[track_caller]
fn lines(text: &str) -> (Vec<String>, bool) {
    let Imported { text, is_complete } = imported(text);
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("listen"));
    (lines.map(str::to_owned).collect(), is_complete)
}

#[test]
fn imports_logs_of_servers_and_locations() {
    let (found, is_complete) = lines(
        "map $status $failed { ~^[23] 0; default 1; }\n\
         map $http_user_agent $is_client { ~kube-probe 0; default 1; }\n\
         log_format own '$remote_addr [$time_local] \"$request\" $status $upstream_addr 100%';\n\
         access_log /log/all own;\n\
         server { listen 80; server_name a; root /a;\n\
         location /b/ { access_log off; }\n\
         location /c/ { access_log /log/c combined if=$failed; access_log /log/d own if=$is_client; }\n\
         location /e/ { access_log syslog:server=192.0.2.1,facility=local1 own; }\n\
         location /f/ { access_log /log/all own buffer=4k; } }",
    );
    let expected = [
        "[log]",
        "access = \"/log/all\"",
        "format = \"%h %t \\\"%r\\\" %s %{upstream.address}x 100%%\"",
        "[hosts.\"a *\"]",
        "\"/b/\" = { files = \"/a/b\", access_log = false }",
        "\"/e/\" = { files = \"/a/e\", access_log = \"syslog:udp://192.0.2.1:514\" }",
        "\"/f/\" = { files = \"/a/f\", access_log = \"/log/all\" }",
        "\"/\" = \"-> /a\"",
        "[hosts.\"a *\".\"/c/\"]",
        "files = \"/a/c\"",
        "access_log = [",
        "  { to = \"/log/c\", format = \"combined\", status = [\"4xx\", \"5xx\"] },",
        "  { to = \"/log/d\", skip_agents = [\"kube-probe\"] },",
        "]",
    ];
    assert_eq!((&*found.join("\n"), is_complete), (&*expected.join("\n"), true));
    // The only log is that of the server.
    let (found, _) = lines(
        "server { listen 80; root /a; access_log /log/a; location /b/ { access_log off; } }\n\
         server { listen 80; server_name b; root /b; access_log /log/a; }",
    );
    assert!(found.contains(&"access = \"/log/a\"".to_owned()), "{found:?}");
    for lost in [
        "access_log /log/$host;",
        "access_log /log/a none;",
        "access_log /log/a combined if=$http_x;",
        "log_format x '$status $msec'; access_log /log/a x;",
    ] {
        let (found, is_complete) = lines(&format!("{lost} server {{ listen 80; root /a; }}"));
        assert!(!is_complete && found[0].starts_with("# nginx.conf:1"), "{lost}: {found:?}");
    }
}

#[test]
fn imports_rewrites() {
    check(&[
        (
            "root /a; rewrite ^/old/(.*)$ /new/$1 permanent; rewrite ^/go$ https://b.example/? redirect;\n\
             rewrite ^/u/(\\d+)$ /user?id=$1 last;",
            true,
            "\"~ ^/old/(.*)$\" = \"<< /new/{re.1}?{query}\"\n\
             \"~ ^/go$\" = { redirect = \"https://b.example/?\", status = 302 }\n\
             \"~ ^/u/(\\\\d+)$\" = { rewrite = \"/user?id={re.1}&{query}\" }\n\"/\" = \"-> /a\"\n",
        ),
        // The prefix changes.
        (
            "location /api/ { rewrite ^/api/(.*)$ /v1/$1 break; proxy_pass http://h; }",
            true,
            "\"/api/\" = { proxy = \"http://h/v1/\", host = \"upstream\" }\n",
        ),
        (
            "location /api { rewrite ^/api(/.*)?$ /x last; rewrite /api/(\\d+) /n/$1 break; proxy_pass http://h; }\n\
             location /x { return 204; }",
            true,
            "\"/api\" = { proxy = \"http://h/api\", host = \"upstream\" }\n\
             \"/x\" = { respond = \"\", status = 204 }\n\
             \"~ ^/api(/.*)?$\" = { rewrite = \"/x\" }\n\
             \"~ (?:^/api/(\\\\d+)|^/api(?:/.*)?(?:/api/(?:\\\\d+)))\" = { proxy = \"http://h/\", host = \"upstream\", rewrite = \"/n/{re.1}\" }\n",
        ),
        (
            "location /b/ { rewrite ^ /c.html last; } location /d { rewrite ^ https://e.example$request_uri? permanent; }",
            true,
            "\"/b/\" = { rewrite = \"/c.html\" }\n\"/d\" = \"<< https://e.example{uri}\"\n",
        ),
        // Paths without a file.
        (
            "root /a; if (!-e $request_filename) { rewrite ^(.*)$ /index.html?p=$1 last; break; }",
            true,
            "\"/\" = { files = \"/a\", try_files = [\"{path}\", \"{path}/\", \"/index.html?p={path}&{query}\"] }\n",
        ),
    ]);
    for lost in [
        "root /a; rewrite ^/(.*)$ /x/$1 last;",
        "location / { rewrite ^/(.*)$ /x?a=$1 permanent; }",
        "root /a; rewrite ^/(?!a.b+)x /b permanent;",
        "root /a; rewrite ^/b$ /c permanent; location = /b { return 204; }",
        "root /a; location / { rewrite ^/(.*)\\.html$ /$1 last; } location /b/ { return 204; }",
        "location ~ x { rewrite ^/b$ /c last; root /a; }",
    ] {
        let (found, is_complete) = host(lost);
        assert!(!is_complete && found.contains("`rewrite ^/"), "{lost}: {found}");
    }
}

#[test]
fn imports_fields_by_media_type() {
    let with_maps = |text: &str| {
        let found = imported(&format!(
            "map $sent_http_content_type $e {{ default off; text/html epoch; ~*image/ 30d; }}\n\
             map $sent_http_content_type $csp {{ application/javascript a; ~^image/svg\\+xml$ b; }}\n\
             map $sent_http_content_type $other {{ ~(a|b)/ 1h; }}\n\
             server {{ listen 80; {text} }}"
        ));
        (found.text, found.is_complete)
    };
    for (text, expected) in [
        (
            "root /a; expires $e;",
            Some(
                "Cache-Control = { \"2xx 3xx image/*\" = \"max-age=2592000\", \
                 \"2xx 3xx text/html\" = \"no-cache\" }",
            ),
        ),
        (
            "root /a; expires $e; add_header Cache-Control public;",
            Some(
                "Cache-Control = { \"2xx 3xx\" = \"public\", \
                 \"2xx 3xx image/*\" = \"max-age=2592000, public\", \
                 \"2xx 3xx text/html\" = \"no-cache, public\" }",
            ),
        ),
        (
            "return 200 x; add_header X-A \"<${csp}>\";",
            Some(
                "X-A = { \"*\" = \"<>\", \"image/svg+xml\" = \"<b>\", \
                 \"text/javascript application/javascript application/x-javascript\" = \"<a>\" }",
            ),
        ),
        ("root /a; expires $other;", None),
        ("root /a; add_header X-A $other;", None),
    ] {
        let (found, is_complete) = with_maps(text);
        assert_eq!(is_complete, expected.is_some(), "{text}: {found}");
        assert!(found.contains(expected.unwrap_or("sent_http_content_type")), "{text}: {found}");
    }
}

#[test]
fn imports_scripts() {
    const PASS: &str = "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n\
                        fastcgi_param QUERY_STRING $query_string; fastcgi_pass unix:/p;";
    check(&[
        (
            &format!(
                "root /a; index index.php; location / {{ try_files $uri $uri/ /index.php?$args; }}\n\
                 location ~ \\.php$ {{ {PASS} }}"
            ),
            true,
            "\"/\" = { files = \"/a\", php = \"unix:/p\", fallback = \"index.php\", index = [] }\n",
        ),
        // The index of a folder is a script of another location.
        (
            &format!(
                "root /a; index index.php index.html; location /s/ {{ expires 1h; }} fastcgi_read_timeout 5m;\n\
                 location ~ \\.php$ {{ fastcgi_param A b; {PASS} }} location ~ ^/up.*\\.php$ {{ deny all; }}"
            ),
            true,
            "\"/s/\" = { files = \"/a/s\", php = \"unix:/p\", environment = [\"A=b\"], \
             response_timeout = \"5m\", body_timeout = \"5m\", cache = \"max-age=3600\" }\n\
             \"~ \\\\.php$\" = { fastcgi = \"unix:/p\", root = \"/a\", environment = [\"A=b\"], \
             response_timeout = \"5m\", body_timeout = \"5m\" }\n\
             \"~ ^/up.*\\\\.php$\" = { respond = \"\", status = 403 }\n\
             \"/\" = { files = \"/a\", php = \"unix:/p\", environment = [\"A=b\"], \
             response_timeout = \"5m\", body_timeout = \"5m\" }\n",
        ),
        // A front controller that clients do not reach by its name.
        (
            &format!(
                "root /a; location / {{ try_files $uri /index.php$is_args$args; }}\n\
                 location ~ ^/index\\.php(/|$) {{ {PASS} internal; }} location ~ \\.php$ {{ return 404; }}"
            ),
            true,
            "\"/\" = { files = \"/a\", php = \"unix:/p\", scripts = [\"index.php\"], \
             fallback = \"index.php\", index = [] }\n\
             # nginx.conf:5: `internal`: clients get 404\n\
             \"~ ^/index\\\\.php(/|$)\" = { respond = \"\", status = 404 }\n\
             \"~ \\\\.php$\" = { respond = \"\", status = 404 }\n",
        ),
        // Paths without a file by a condition, and by a named location.
        (
            &format!(
                "root /a; index index.php; if (!-e $request_filename) {{ rewrite ^.*$ /index.php last; }}\n\
                 location ~ \\.php$ {{ {PASS} }}"
            ),
            true,
            "\"/\" = { files = \"/a\", php = \"unix:/p\", fallback = \"index.php\", index = [] }\n",
        ),
        (
            &format!(
                "root /a; location / {{ try_files $uri @app; }} location @app {{ rewrite ^(.*)$ /app.php/$1 last; }}\n\
                 location ~ ^/app\\.php(/|$) {{ {PASS} }}"
            ),
            true,
            "\"/\" = { files = \"/a\", index = [], try_files = [\"{path}\", \"@app\"] }\n\
             \"@app\" = { rewrite = \"/app.php/{path}\" }\n\
             \"~ ^/app\\\\.php(/|$)\" = { fastcgi = \"unix:/p\", root = \"/a\" }\n",
        ),
        // Rules of the scripts are not those of the files.
        (
            &format!(
                "root /a; location / {{ try_files $uri /index.php; }}\n\
                 location ~ \\.php$ {{ {PASS} allow 10.0.0.0/8; deny all; }}"
            ),
            true,
            "\"/\" = { files = \"/a\", index = [], try_files = [\"{path}\", \"/index.php\"] }\n\
             \"~ \\\\.php$\" = { fastcgi = \"unix:/p\", root = \"/a\", allow = [\"10.0.0.0/8\"] }\n",
        ),
        // Applications.
        (
            "location /a/ { fastcgi_pass 127.0.0.1:9000; fastcgi_keep_conn on; }\n\
             location /b/ { fastcgi_param SCRIPT_FILENAME /srv/b.php; fastcgi_pass h:9000; }\n\
             location /c/ { root /c; fastcgi_param SCRIPT_FILENAME /app$fastcgi_script_name; fastcgi_pass h:9000; }",
            true,
            "\"/a/\" = { fastcgi = \"127.0.0.1:9000\", max_idle_connections = 8 }\n\
             \"/b/\" = { fastcgi = \"h:9000\", root = \"/srv/b.php\" }\n\
             \"/c/\" = { fastcgi = \"h:9000\", root = \"/c/c\", script_root = \"/app\" }\n",
        ),
    ]);
}

#[test]
fn imports_limits_of_the_whole_server() {
    let (found, is_complete) = lines(
        "keepalive_timeout 65; keepalive_requests 100; client_body_timeout 12s; send_timeout 30;\n\
         client_header_timeout 10; large_client_header_buffers 4 32k;\n\
         upstream u { server h:1 fail_timeout=0; keepalive 16; keepalive_timeout 5s; }\n\
         server { listen 80; location / { proxy_pass http://u; } }",
    );
    let expected = [
        "[limits]",
        "idle_timeout = \"65s\"",
        "max_requests = 100",
        "head_timeout = \"10s\"",
        "stall_timeout = \"30s\"",
        "max_head_bytes = \"65000B\"",
        "[hosts.\"*\"]",
        "\"/\" = { proxy = \"http://h:1/\", max_idle_connections = 16, keep_alive_timeout = \"5s\", host = \"u\" }",
    ];
    assert_eq!((&*found.join("\n"), is_complete), (&*expected.join("\n"), true));
    let (found, _) = lines("keepalive_timeout 0; server { listen 80; root /a; }");
    assert_eq!(found[1], "max_requests = 1");
    for lost in [
        "keepalive_timeout 5; server { listen 80; root /a; keepalive_timeout 6; }",
        "server { listen 80; root /a; location /b/ { send_timeout 6; } }",
        "upstream u { server h:1 fail_timeout=0; server h:2; }\n\
         server { listen 80; location / { proxy_pass http://u; } }",
    ] {
        assert!(!lines(lost).1, "{lost}");
    }
}

#[test]
fn imports_balancing() {
    for (group, expected, is_complete) in [
        (
            "server h:1 weight=3; server h:2 backup; random two least_conn;",
            "proxy = [\"http://h:1/ weight=3\", \"http://h:2/ backup\"], balance = \"random-two\"",
            true,
        ),
        (
            "ip_hash; server h:1; server h:2 weight=2 max_conns=0;",
            "proxy = [\"http://h:1/\", \"http://h:2/ weight=2\"], balance = \"hash\"",
            true,
        ),
        (
            "hash $request_uri consistent; server h:1; server h:2;",
            "proxy = [\"http://h:1/\", \"http://h:2/\"], balance = \"hash\", hash_key = \"{uri}\"",
            true,
        ),
        // A limit of the whole server becomes one of each worker.
        ("server h:1 max_conns=9;", "proxy = \"http://h:1/ max_connections=9\"", false),
        ("server h:1 drain;", "proxy = \"http://h:1/\"", false),
        ("hash $no_such_value; server h:1;", "proxy = \"http://h:1/\"", false),
    ] {
        let (found, complete) = lines(&format!(
            "upstream u {{ {group} }} server {{ listen 80; location / {{ proxy_pass http://u; }} }}"
        ));
        let route = format!("\"/\" = {{ {expected}, host = \"u\" }}");
        assert_eq!(found.last(), Some(&route), "{group}");
        assert_eq!(complete, is_complete, "{group}");
    }
}

#[test]
fn imports_maps_of_paths() {
    let map = "map $uri $new { /a.html /b.html; ~^/c/(?<id>\\d+)$ /d?id=$id; /e ''; }";
    let (found, is_complete) =
        lines(&format!("{map} server {{ listen 80; root /a; if ($new) {{ return 301 $new; }} }}"));
    let expected = [
        "[hosts.\"*\"]",
        "\"= /a.html\" = \"<< /b.html?\"",
        "\"~ ^/c/(?<id>\\\\d+)$\" = \"<< /d?id={re.id}\"",
        "\"/\" = \"-> /a\"",
    ];
    assert_eq!((&*found.join("\n"), is_complete), (&*expected.join("\n"), true));
    for lost in [
        "map $pipe $new { a /b; } server { listen 80; root /a; if ($new) { return 301 $new; } }",
        "map $pipe $x { a b; } server { listen 80; root /a; add_header A $x; }",
    ] {
        assert!(!lines(lost).1, "{lost}");
    }
    let (found, is_complete) =
        lines("map $pipe $x { a b; } server { listen 80; root /a; add_header A $x; }");
    let reason = "the value of $x depends on $pipe by a `map` without an equivalent";
    assert!(!is_complete && found.iter().any(|line| line.contains(reason)), "{found:?}");
}

#[test]
fn imports_certificates_of_clients() {
    let server = |name: &str, rules: &str| {
        format!(
            "server {{ listen 443 ssl; server_name {name}; ssl_certificate /c; ssl_certificate_key /k;\n\
             root /a; {rules} }}\n"
        )
    };
    let required = "ssl_client_certificate /ca; ssl_verify_client on;";
    let optional = "ssl_client_certificate /ca; ssl_verify_client optional;\n\
                    location /b/ { if ($ssl_client_verify != SUCCESS) { return 403; } }";
    for (text, parts, missing) in [
        (server("a", required), vec!["client_ca = \"/ca\""], "client_cert_required"),
        (
            server("a", optional),
            vec![
                "client_auth = \"optional\"",
                "\"/b/\" = { files = \"/a/b\", client_cert_required = true }",
            ],
            "501",
        ),
        (
            server("a", required) + &server("b", ""),
            vec!["client_auth = \"optional\"", "[hosts.\"a *\"]\nclient_cert_required = true\n"],
            "not carried",
        ),
        // Certificates of another authority would be accepted.
        (
            server("a", required) + &server("b", &required.replace("/ca", "/other")),
            vec![
                "[hosts.\"b\"]\n\"/\" = { respond = \"the access rules could not be imported\\n\"",
            ],
            "optional",
        ),
    ] {
        let Imported { text: found, .. } = imported(&text);
        for part in parts {
            assert!(found.contains(part), "{part}\n{found}");
        }
        assert!(!found.contains(missing), "{missing}\n{found}");
    }
}

#[test]
fn imports_maintenance_and_request_ids() {
    check(&[
        (
            "root /a; location / { if (-f $document_root/down.html) { return 503; } }",
            true,
            "maintenance = \"/a/down.html\"\n\
             # nginx.conf:3: `if (-f $document_root/down.html)`: clients get the content of the file\n\
             \"/\" = \"-> /a\"\n",
        ),
        (
            "location / { proxy_pass http://h; proxy_set_header X-Trace $request_id; }",
            true,
            "request_headers = { X-Trace = \"{request_id}\" }\nrequest_id = true\n\
             \"/\" = { proxy = \"http://h/\", host = \"upstream\" }\n",
        ),
    ]);
    let (found, is_complete) = lines(
        "map $http_upgrade $upgrade { default upgrade; '' close; }\n\
         server { location / { proxy_pass http://h; proxy_set_header Connection $upgrade; } }",
    );
    assert!(is_complete, "{found:?}");
    for parameter in ["HTTP_X-Accel a", "HTTP_X_SENDFILE_TYPE X-Accel-Redirect", "A $host"] {
        let location = format!("location / {{ fastcgi_pass h:1; fastcgi_param {parameter}; }}");
        let (found, is_complete) = host(&location);
        assert!(!is_complete && !found.contains("environment"), "{found}");
    }
    // An application would send the name of a file in place of the file.
    let (found, is_complete) = host(
        "location / { proxy_pass http://h; proxy_set_header X-Sendfile-Type X-Accel-Redirect; }",
    );
    assert!(!is_complete && !found.contains("request_headers"), "{found}");
}

#[test]
fn includes_no_hidden_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("nginx.conf", "include *.site;");
    write(".a.site", "server { listen 80; root /a; }");
    write("b.site", "server { listen 80; root /b; }");
    let Imported { text, .. } =
        weft_import::nginx(&folder.path().join("nginx.conf"), &Program).unwrap();
    assert!(text.contains("-> /b") && !text.contains("/a\""), "{text}");
}

#[test]
fn imports_sessions() {
    let server = "server { listen 80; location / { proxy_pass http://app; } }";
    for (sticky, is_complete, expected) in [
        (
            "cookie srv expires=1h path=/ httponly",
            true,
            "sticky_cookie = \"srv\", sticky_max_age = \"60m\"",
        ),
        ("cookie srv domain=.a.example", false, "sticky_cookie = \"srv\""),
        ("route $a", false, "proxy = ["),
    ] {
        let text = format!("upstream app {{ server a:1; server b:1; sticky {sticky}; }}\n{server}");
        let found = imported(&text);
        assert_eq!(found.is_complete, is_complete, "{}", found.text);
        assert!(found.text.contains(expected), "{}", found.text);
    }
}

#[test]
fn imports_compression_and_its_level() {
    check(&[
        (
            "location / { proxy_pass http://h/; gzip on; gzip_comp_level 5; }",
            true,
            "compress = true\ngzip_level = 5\n\
             \"/\" = { proxy = \"http://h/\", host = \"upstream\" }\n",
        ),
        // The level is inherited, also without gzip in its block.
        (
            "gzip_comp_level 9; location / { fastcgi_pass h:1; gzip on; }\n\
             location /a/ { fastcgi_pass h:1; brotli on; } location /b/ { fastcgi_pass h:1; }",
            true,
            "\"/\" = { fastcgi = \"h:1\", compress = true, gzip_level = 9 }\n\
             \"/a/\" = { fastcgi = \"h:1\", compress = true }\n\
             \"/b/\" = { fastcgi = \"h:1\" }\n",
        ),
        (
            "location / { proxy_pass http://h/; gzip on; gzip_comp_level 10; }",
            false,
            "compress = true\n\
             # nginx.conf:3: `gzip_comp_level 10`: not carried over: a level is a number from 1 to 9\n\
             \"/\" = { proxy = \"http://h/\", host = \"upstream\" }\n",
        ),
        // Files are compressed once, at a level of their own.
        ("root /a; gzip on; gzip_comp_level 5;", true, "\"/\" = \"-> /a\"\n"),
    ]);
}

#[test]
fn imports_names_of_request_fields() {
    const PASS: &str = "location / { proxy_pass http://h/; proxy_set_header Host $host; }";
    let route =
        |names: &str| format!("\"/\" = {{ proxy = \"http://h/\", field_names = \"{names}\" }}\n");
    check(&[
        (&format!("underscores_in_headers on; {PASS}"), true, &route("underscores")),
        (&format!("ignore_invalid_headers off; {PASS}"), true, &route("any")),
        (
            &format!("underscores_in_headers off; ignore_invalid_headers on; {PASS}"),
            true,
            "\"/\" = \">> http://h/\"\n",
        ),
    ]);
}

#[test]
fn imports_limits_on_failures() {
    for (servers, is_complete, expected) in [
        (
            "server a:1 max_fails=5 fail_timeout=30s; server b:1 max_fails=5;",
            true,
            "max_failures = 5, failure_window = \"30s\", down_time = \"30s\"",
        ),
        ("server a:1 max_fails=5; server b:1 max_fails=6;", false, "max_failures = 6"),
        ("server a:1 max_fails=0 fail_timeout=0;", true, "proxy = \"http://a:1/\""),
        ("server a:1 max_fails=0; server b:1;", false, "proxy = ["),
        ("server a:1 fail_timeout=x; server b:1;", false, "proxy = ["),
    ] {
        let text = format!(
            "upstream app {{ {servers} }} server {{ listen 80; location / {{ proxy_pass http://app; }} }}"
        );
        let found = imported(&text);
        assert!(found.text.contains(expected), "{servers}\n{}", found.text);
        assert_eq!(found.is_complete, is_complete, "{servers}\n{}", found.text);
    }
}

#[test]
fn imports_tls_versions() {
    let server = |protocols: &str| {
        format!(
            "server {{ listen 443 ssl; ssl_certificate /c; ssl_certificate_key /k; root /a;\n\
             {protocols} }}"
        )
    };
    for (protocols, is_modern) in
        [("ssl_protocols TLSv1.3;", true), ("ssl_protocols TLSv1.2 TLSv1.3;", false), ("", false)]
    {
        let Imported { text, is_complete } = imported(&server(protocols));
        assert_eq!(text.contains("profile = \"modern\"\n"), is_modern, "{text}");
        assert!(is_complete, "{text}");
    }
}

#[test]
fn imports_failures_by_status() {
    check(&[(
        "location / { proxy_pass http://a/; proxy_next_upstream error timeout http_502 http_503; }",
        true,
        "\"/\" = { proxy = \"http://a/\", host = \"upstream\", failure_statuses = [\"502\", \"503\"] }\n",
    )]);
}

#[test]
fn imports_slow_start() {
    let text = "upstream app { server a:1 slow_start=30s; server b:1; }\n\
                server { listen 80; location / { proxy_pass http://app; } }";
    let found = imported(text);
    assert!(found.is_complete && found.text.contains("slow_start = \"30s\""), "{}", found.text);
}

#[test]
fn imports_certificates_for_upstreams() {
    check(&[(
        "location / { proxy_pass https://a.example/; proxy_ssl_verify on; proxy_ssl_name b.example; \
         proxy_ssl_certificate /c.pem; proxy_ssl_certificate_key /c.key; }",
        true,
        "\"/\" = { proxy = \"https://a.example/\", host = \"upstream\", tls_cert = \"/c.pem\", \
         tls_key = \"/c.key\", tls_name = \"b.example\" }\n",
    )]);
}

#[test]
fn imports_scgi() {
    check(&[(
        "location / { scgi_pass unix:/run/app.sock; scgi_read_timeout 2m; scgi_param SCGI 1; \
         scgi_param QUERY_STRING $query_string; scgi_param OWN value; scgi_request_buffering off; }",
        true,
        "\"/\" = { scgi = \"unix:/run/app.sock\", environment = [\"OWN=value\"], \
         buffer_requests = false, response_timeout = \"2m\", body_timeout = \"2m\" }\n",
    )]);
}

#[test]
fn imports_uwsgi() {
    check(&[(
        "location / { uwsgi_pass unix:/run/app.sock; uwsgi_read_timeout 2m; uwsgi_param UWSGI_SCHEME x; \
         uwsgi_param REQUEST_METHOD $request_method; uwsgi_buffering off; uwsgi_hide_header X-Own; }",
        true,
        "remove_response_headers = [\"X-Own\"]\n\n[hosts.\"a.example *\".\"/\"]\n\
         uwsgi = \"unix:/run/app.sock\"\nenvironment = [\"UWSGI_SCHEME=x\"]\n\
         buffer_responses = false\nresponse_timeout = \"2m\"\nbody_timeout = \"2m\"\n",
    )]);
}

#[test]
fn imports_grpc() {
    check(&[
        (
            "location /pkg.A/ { grpc_pass grpc://127.0.0.1:50051; grpc_read_timeout 1h; \
             grpc_set_header X-A $remote_addr; }",
            true,
            "request_headers = { X-A = \"{client_ip}\" }\n\
             \n[hosts.\"a.example *\".\"/pkg.A/\"]\n\
             proxy = \"h2c://127.0.0.1:50051/pkg.A/\"\nhost = \"upstream\"\n\
             response_timeout = \"60m\"\nbody_timeout = \"60m\"\ntunnel_timeout = \"60m\"\n\
             http_version = \"2\"\n",
        ),
        (
            "location / { grpc_pass 127.0.0.1:50051; grpc_set_header Host $host; }",
            true,
            "\"/\" = { proxy = \"h2c://127.0.0.1:50051/\", http_version = \"2\" }\n",
        ),
        (
            "location / { grpc_pass unix:/run/a.sock; }",
            true,
            "\"/\" = { proxy = \"unix:/run/a.sock\", host = \"upstream\", http_version = \"2\" }\n",
        ),
        (
            "location / { grpc_pass grpcs://a.example; grpc_ssl_verify on; \
             grpc_ssl_trusted_certificate /a.pem; }",
            true,
            "\"/\" = { proxy = \"https://a.example/\", host = \"upstream\", ca = \"/a.pem\", \
             http_version = \"2\" }\n",
        ),
        (
            "location / { grpc_pass grpcs://a.example; }",
            false,
            "# nginx.conf:3: `grpc_pass grpcs://a.example`: not carried over: the certificate of the \
             upstream is verified, which nginx does with\n#   grpc_ssl_verify only; `ca` names the \
             authority of a private one\n\
             \"/\" = { proxy = \"https://a.example/\", host = \"upstream\", http_version = \"2\" }\n",
        ),
        (
            "location / { grpc_pass http://a.example; }",
            false,
            "# nginx.conf:3: `grpc_pass http://a.example`: not carried over: its scheme is neither \
             grpc nor grpcs\n\
             \"/\" = { respond = \"this location could not be imported\\n\", status = 501 }\n",
        ),
    ]);
}

/// An application would otherwise get the path of the client, and its fields would reach clients.
#[test]
fn imports_paths_and_hidden_fields_of_scgi() {
    check(&[(
        "location /r/ { rewrite ^/r/(.*)\\.html$ /r/$1.php break; scgi_pass h:4000; \
         scgi_hide_header X-Own; }",
        true,
        "remove_response_headers = [\"X-Own\"]\n\
         \"/r/\" = { scgi = \"h:4000\" }\n\
         \"~ ^/r/(.*)\\\\.html$\" = { scgi = \"h:4000\", rewrite = \"/r/{re.1}.php\" }\n",
    )]);
}
