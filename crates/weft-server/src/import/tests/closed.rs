//! Directives without an equivalent leave nothing open that nginx closes.

use super::*;

const REFUSED: &str = "{ respond = \"the access rules could not be imported\\n\", status = 403 }\n";

#[test]
fn lost_conditions_that_protect_refuse_the_location() {
    for (condition, is_refused) in [
        ("if ($pipe) { return 403; }", true),
        ("if ($pipe) { return 444; }", true),
        ("if ($pipe) { return 503; }", true),
        ("if ($pipe) { deny all; }", true),
        ("if ($pipe) { rewrite ^ /b.png break; }", true),
        // Others give the client more, or send it elsewhere.
        ("if ($pipe) { return 204; }", false),
        ("if ($pipe) { return 302 /b; }", false),
        ("if ($pipe) { rewrite ^ /b permanent; }", false),
        ("if ($pipe) { rewrite ^ https://b.example/; }", false),
        ("if (!-f $request_filename) { rewrite ^/a/(.*) /b/$1; }", false),
    ] {
        for text in
            [format!("location / {{ root /a; {condition} }}"), format!("root /a; {condition}")]
        {
            let (found, is_complete) = host(&text);
            let route = if is_refused { REFUSED } else { "\"-> /a\"\n" };
            assert!(found.ends_with(&format!("\"/\" = {route}")), "{text}\n{found}");
            assert!(!is_complete && found.contains("not carried over: this condition"), "{found}");
        }
    }
}

#[test]
fn variables_of_lost_conditions_have_no_value() {
    let (found, is_complete) =
        host("location / { set $a /b; if ($pipe = c) { set $a /c; } root $a; }");
    assert!(found.ends_with("status = 501 }\n") && !is_complete, "{found}");
    check(&[(
        "location / { set $a /b; if ($cookie_a = c) { set $a /c; } root $a; }",
        true,
        "\"/ @a\" = { files = \"/c\", when = { cookie = { a = \"c\" } } }\n\"/\" = \"-> /b\"\n",
    )]);
    let (found, is_complete) = host("location / { set $a /b; root $a; }");
    assert_eq!((&*found, is_complete), ("\"/\" = \"-> /b\"\n", true));
}

#[test]
fn paths_of_lost_rewrites_are_refused() {
    const TEXT: &str = "{ respond = \"this rewrite could not be imported\\n\", status = 403 }\n";
    for (directives, key, text) in [
        ("root /a; rewrite ^/b(.*)$ /b/c$1 last;", "~ ^/b(.*)$", TEXT),
        ("root /a; location /b/ { rewrite /c$ /b/d/c last; }", "~ ^/b(?:/.*)?(?:/c$)", TEXT),
        ("root /a; rewrite ^/(?!b.c+)x /d last;", "/", REFUSED),
        ("root /a; rewrite ^/b$ /c last; location = /b { }", "= /b", REFUSED),
        ("root /a; location ~ \\.x$ { rewrite ^/b.x$ /c last; }", "~ \\\\.x$", REFUSED),
    ] {
        let (found, is_complete) = host(directives);
        assert!(found.contains(&format!("\"{key}\" = {text}")), "{directives}\n{found}");
        assert!(!is_complete && found.contains("not carried over: "), "{directives}\n{found}");
    }
    // A redirect that is lost leads nobody to other contents.
    let (found, _) = host("root /a; rewrite ^/(?!b.c+)x /d redirect;");
    assert!(found.ends_with("\"/\" = \"-> /a\"\n"), "{found}");
}

#[test]
fn conditions_about_methods_are_routes() {
    check(&[
        (
            "location /b/ { root /a; if ($request_method = DELETE) { return 403; } }",
            true,
            "\"/b/\" = \"-> /a/b\"\n\"DELETE /b/\" = { respond = \"\", status = 403 }\n",
        ),
        (
            "location ~ ^/b/ { root /a; if ($request_method ~ ^(PUT|DELETE)$) { return 405; } }",
            true,
            "\"~ ^/b/\" = \"-> /a\"\n\"PUT,DELETE ~ ^/b/\" = { respond = \"\", status = 405 }\n",
        ),
        (
            "root /a; if ($request_method = OPTIONS) { add_header X-A b; return 204; }",
            true,
            "\"/ @method\" = { respond = \"\", status = 204, response_headers = { X-A = \"b\" }, \
             when = { method = \"OPTIONS\" } }\n\"/\" = \"-> /a\"\n",
        ),
        (
            "root /a; if ($request_method ~ ^(HEAD)$) { return 405; }",
            true,
            "\"/ @method\" = { respond = \"\", status = 405, when = { method = \"HEAD\" } }\n\
             \"/\" = \"-> /a\"\n",
        ),
    ]);
}

#[test]
fn conditions_about_files_have_equivalents() {
    check(&[(
        "root /a; if (-f $document_root/m.html) { rewrite ^(.*)$ /m.html last; break; }",
        true,
        "# nginx.conf:3: `if (-f $document_root/m.html)`: clients get the content of the file\n\
             maintenance = \"/a/m.html\"\n\"/\" = \"-> /a\"\n",
    )]);
    let (found, is_complete) = host(
        "root /a; location ~ ^/x\\.php$ { if (!-f $document_root$fastcgi_script_name) { return 404; }\n\
         fastcgi_pass unix:/p; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }",
    );
    assert!(is_complete && found.contains("unix:/p") && !found.contains("403"), "{found}");
    let (found, is_complete) =
        host("root /a; if (-f $document_root/m.html) { rewrite ^ /n.html; }");
    assert!(found.ends_with(&format!("\"/\" = {REFUSED}")) && !is_complete, "{found}");
}

#[test]
fn rewrites_of_missing_files_do_not_lead_back() {
    check(&[(
        "location /b { root /a; if (!-f $request_filename) { rewrite (.*) /c$1 last; } }",
        true,
        "\"/b\" = { files = \"/a/b\", try_files = [\"{path}\", \"{path}/\", \"/c{path}\"] }\n",
    )]);
    for target in ["/$1", "/$1?a=b", "//$1"] {
        let (found, is_complete) = host(&format!(
            "location /b {{ root /a; if (!-f $request_filename) {{ rewrite (.*) {target} last; }} }}"
        ));
        assert!(!is_complete && found.contains("not carried over: this condition"), "{found}");
        assert!(found.contains("\"/b\" = \"-> /a/b\"\n"), "{found}");
    }
}

#[test]
fn a_location_that_denies_all_needs_no_folder() {
    check(&[
        ("location /b/ { deny all; }", true, "\"/b/\" = { respond = \"\", status = 403 }\n"),
        (
            "location ~ \\.x$ { deny all; } location / { root /a; }",
            true,
            "\"~ \\\\.x$\" = { respond = \"\", status = 403 }\n\"/\" = \"-> /a\"\n",
        ),
        (
            "location /b/ { root /a; allow 10.0.0.0/8; deny all; }",
            true,
            "allow = [\"10.0.0.0/8\"]\n\"/b/\" = \"-> /a/b\"\n",
        ),
        (
            "satisfy any; auth_basic a; auth_basic_user_file /none/users; root /a; location /b/ { deny all; }",
            true,
            "satisfy = \"any\"\nbasic_auth = \"/none/users\"\nrealm = \"a\"\n\"/b/\" = { files = \"/a/b\", \
             deny = [\"0.0.0.0/0\", \"::/0\"] }\n\"/\" = \"-> /a\"\n",
        ),
    ]);
}

#[test]
fn nested_expressions_do_not_precede_longer_prefixes() {
    check(&[
        (
            "root /a; location /m/ { location ~ \\.csv$ { expires 1h; } } location /m/i/ { deny all; }\n\
             location ~ \\.x$ { return 404; }",
            true,
            "\"~ ^/m/i/\" = { respond = \"\", status = 403 }\n\
             \"~ ^/m(?:/.*)?(?:\\\\.csv$)\" = { files = \"/a\", cache = \"max-age=3600\" }\n\
             \"/m/\" = \"-> /a/m\"\n\
             \"~ \\\\.x$\" = { respond = \"\", status = 404 }\n\"/\" = \"-> /a\"\n",
        ),
        // Without expressions beside it, the location with the longer prefix precedes as a whole.
        (
            "root /a; location /m/ { location ~ \\.csv$ { return 204; } } location /m/i/ { root /b; }",
            true,
            "\"~ ^/m/i/\" = \"-> /b\"\n\
             \"~ ^/m(?:/.*)?(?:\\\\.csv$)\" = { respond = \"\", status = 204 }\n\
             \"/m/\" = \"-> /a/m\"\n\"/\" = \"-> /a\"\n",
        ),
        // No path of the nested location begins with the longer prefix.
        (
            "root /a; location /m/ { location ~ ^/m/j/x { return 204; } } location /m/i/ { return 404; }",
            true,
            "\"~ ^/m/j/x\" = { respond = \"\", status = 204 }\n\"/m/\" = \"-> /a/m\"\n\
             \"/m/i/\" = { respond = \"\", status = 404 }\n\"/\" = \"-> /a\"\n",
        ),
        // Preferred prefixes: the longer one precedes, wherever it is in the file.
        (
            "root /a; location ^~ /m/ { } location ^~ /m/i/ { return 404; } location ~ \\.x$ { return 204; }",
            true,
            "\"~ ^/m/i/\" = { respond = \"\", status = 404 }\n\"~ ^/m/\" = \"-> /a\"\n\
             \"~ \\\\.x$\" = { respond = \"\", status = 204 }\n\"/\" = \"-> /a\"\n",
        ),
    ]);
    for (directives, refused) in [
        (
            "root /a; location /m/ { location ~ \\.csv$ { expires 1h; } } location /m/i/ { auth_basic a; \
             auth_basic_user_file /none; } location ~ \\.x$ { return 404; }",
            "~ ^/m/i/.*(?:\\\\.csv$)",
        ),
        (
            "root /a; location ^~ /m/ { } location /m/i/ { return 204; } location ~ \\.x$ { return 404; }",
            "~ ^/m/i/",
        ),
    ] {
        let (found, is_complete) = host(directives);
        assert!(found.contains(&format!("\"{refused}\" = {REFUSED}")), "{directives}\n{found}");
        assert!(!is_complete, "{directives}");
    }
    // A longer prefix that becomes an expression does not precede a still longer one.
    let (found, is_complete) = host(
        "root /a; location /m/ { location ~ \\.csv$ { return 204; } } location /m/i/ { root /b; }\n\
         location /m/i/j/ { alias /c/; }",
    );
    let refused = "\"~ ^/m/i/j/\" = { respond = \"this location could not be imported\\n\"";
    assert!(found.contains(refused) && !is_complete, "{found}");
    // Only options of files differ.
    let (found, is_complete) = host(
        "root /a; location /m/ { location ~ \\.csv$ { expires 1h; } } location /m/i/ { expires 2h; }\n\
         location ~ \\.x$ { return 404; }",
    );
    assert!(!found.contains("status = 403") && !is_complete, "{found}");
}

#[test]
fn a_location_that_only_rewrites_has_no_folder() {
    check(&[
        (
            "root /a; location /b/ { rewrite ^/b/(?<page>.*)$ /c.html; }",
            true,
            "\"/\" = \"-> /a\"\n\"~ ^/b/(?<page>.*)$\" = { rewrite = \"/c.html\" }\n",
        ),
        (
            "root /a; location ^~ /b { rewrite ^/b/?(.*)$ /c/$1 last; }",
            true,
            "\"/\" = \"-> /a\"\n\"~ ^/b/?(.*)$\" = { rewrite = \"/c/{re.1}\" }\n",
        ),
        (
            "root /a; location /b/ { rewrite ^/b/(.*)$ /c/$1 break; }",
            true,
            "\"/\" = \"-> /a\"\n\"~ ^/b/(.*)$\" = { files = \"/a\", rewrite = \"/c/{re.1}\" }\n",
        ),
        // Other paths have files.
        (
            "root /a; location /b/ { rewrite ^/b/(.*)\\.x$ /c/$1 last; }",
            true,
            "\"/b/\" = \"-> /a/b\"\n\"/\" = \"-> /a\"\n\
             \"~ ^/b/(.*)\\\\.x$\" = { rewrite = \"/c/{re.1}\" }\n",
        ),
    ]);
}

#[test]
fn a_longer_prefix_keeps_the_rest_of_a_rewritten_path() {
    check(&[(
        "location /a/b/ { rewrite ^/a/(.*) /$1 break; proxy_pass http://h; proxy_set_header Host $host; }",
        true,
        "\"/a/b/\" = \">> http://h/b/\"\n",
    )]);
}

#[test]
fn expressions_that_only_rewrite_lead_elsewhere() {
    check(&[
        (
            "root /a; location ~ ^/v\\d+/ { rewrite ^/v\\d+/(.*)$ /$1 last; } location ~ \\.x$ { return 404; }",
            true,
            "\"~ ^/v\\\\d+/(.*)$\" = { rewrite = \"/{re.1}\" }\n\
             \"~ \\\\.x$\" = { respond = \"\", status = 404 }\n\"/\" = \"-> /a\"\n",
        ),
        (
            "root /a; location ^~ /b { rewrite ^/b/?(.*)$ /c/$1 last; } location ~ \\.x$ { return 404; }",
            true,
            "\"~ ^/b/?(.*)$\" = { rewrite = \"/c/{re.1}\" }\n\
             \"~ \\\\.x$\" = { respond = \"\", status = 404 }\n\"/\" = \"-> /a\"\n",
        ),
    ]);
}

#[test]
fn locations_and_values_have_their_other_spellings() {
    check(&[
        // No blank behind a modifier.
        (
            "root /a; location ~\\.x$ { return 404; } location =/b { return 204; } location ~*^/C { return 410; }",
            true,
            "\"~ \\\\.x$\" = { respond = \"\", status = 404 }\n\"= /b\" = { respond = \"\", status = 204 }\n\
             \"~ (?i)^/C\" = { respond = \"\", status = 410 }\n\"/\" = \"-> /a\"\n",
        ),
        // The file of an alias.
        (
            "location = /b.ico { alias /a/c.ico; } location = /d { alias /a/d; }\n\
             location ~ ^/e/(.+)$ { alias /a/e/$1; }",
            true,
            "\"= /b.ico\" = { files = \"/a\", rewrite = \"/c.ico\" }\n\"= /d\" = \"-> /a\"\n\
             \"~ ^/e/(.+)$\" = { files = \"/a/e\", rewrite = \"/{re.1}\" }\n",
        ),
        // The media type of a text.
        (
            "location = /b { default_type application/json; return 200 '[]'; }",
            true,
            "\"= /b\" = { respond = \"[]\", content_type = \"application/json\" }\n",
        ),
        (
            "location / { root /a; expires +1h; }",
            true,
            "\"/\" = { files = \"/a\", cache = \"max-age=3600\" }\n",
        ),
    ]);
    let (found, is_complete) =
        host("location = /b { default_type text/html; return 200 '<p>$http_a'; }");
    assert!(!is_complete && !found.contains("content_type ="), "{found}");
    let (found, is_complete) =
        host("location / { proxy_pass http://h; proxy_cookie_path / '/; HttpOnly'; }");
    let flags = "cookie_flags = { \"*\" = \"httponly\" }\n";
    assert!(is_complete && found.starts_with(flags) && !found.contains("cookie_path ="), "{found}");
    let (found, is_complete) = host(
        "location / { proxy_pass http://h; proxy_cookie_flags a secure; proxy_cookie_flags ~ httponly; }",
    );
    let flags = "cookie_flags = { a = \"secure\", \"*\" = \"httponly\" }\n";
    assert!(is_complete && found.starts_with(flags), "{found}");
    let (found, is_complete) =
        host("location / { proxy_pass http://h; proxy_cookie_path / '/; Partitioned'; }");
    assert!(!is_complete && !found.contains("cookie_path ="), "{found}");
    let found = imported("map $uri $folder { default /b; } server { listen 80; root $folder; }");
    assert!(found.text.contains("\"/\" = \"-> /b\"\n") && found.is_complete, "{}", found.text);
}

/// certbot requests its challenges without TLS, also when it renews a certificate.
#[test]
fn challenges_of_hosts_with_tls_have_no_redirect() {
    let imported = imported(
        "server { listen 80; server_name a.example;\n\
         location ^~ /.well-known/acme-challenge/ { root /acme; }\n\
         location / { if ($host = a.example) { return 301 https://$host$request_uri; } return 404; } }\n\
         server { listen 443 ssl; server_name a.example; root /a; }",
    );
    // Requests with TLS get the site.
    let expected = "\"/.well-known/acme-challenge/ @http\"]\n\
                    files = \"/acme/.well-known/acme-challenge\"\nhttps_redirect = false\n\
                    when = { value = { \"{scheme}\" = \"http\" } }\n";
    assert!(imported.text.contains(expected), "{}", imported.text);
}

/// Nextcloud sends all scripts but its entries to the front controller.
#[test]
fn rewrites_with_exceptions_have_two_routes() {
    let server = |rewrite: &str| {
        host(&format!(
            "root /a; location ~ \\.php(?:$|/) {{ {rewrite}\n\
             fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_pass h:9; }}"
        ))
    };
    let (found, is_complete) = server("rewrite ^/(?!index|ocs/v[12]|up/) /index.php$request_uri;");
    assert!(is_complete, "{found}");
    let own = found.find("\"~ ^/(?:index|ocs/v[12]|up/).*(?:\\\\.php(?:$|/))\" = { fastcgi = ");
    let others = found.find("\"~ \\\\.php(?:$|/)\" = { rewrite = \"/index.php{uri}\" }\n");
    assert!(own.is_some() && own < others, "{found}");
    // The target would be rewritten again.
    let (found, is_complete) = server("rewrite ^/(?!status|up/) /index.php$request_uri;");
    assert!(!is_complete && found.contains(REFUSED), "{found}");
}

/// An expression of a nested location matches the whole path, and may begin within the prefix.
#[test]
fn nested_expressions_may_repeat_the_prefix() {
    for (directives, expected) in [
        (
            "location /uploads/ { root /a; location ~* /(?:uploads|files)/.*\\.php$ { deny all; } }",
            Some(r#"|^/uploads/.*\\.php$)" = { respond = "", status = 403 }"#),
        ),
        (
            "location /app/ { proxy_pass http://h; location ~ /app/admin { deny all; } }",
            Some(r#"|^/app/admin)" = { respond = "", status = 403 }"#),
        ),
        (
            "location /app/ { proxy_pass http://h; location ~ p/admin { deny all; } }",
            Some(r#"|^/app/admin)" = { respond = "", status = 403 }"#),
        ),
        // It is not known where a match begins.
        ("location /w/ { proxy_pass http://h; location ~ [a-z]+/x { deny all; } }", None),
    ] {
        let (found, is_complete) = host(directives);
        assert_eq!(is_complete, expected.is_some(), "{directives}: {found}");
        let refused = "\"/w/\" = { respond = \"the access rules could not be imported";
        assert!(found.contains(expected.unwrap_or(refused)), "{directives}: {found}");
    }
}

#[test]
fn differences_of_addresses_and_ports_are_losses() {
    for (text, is_complete) in [
        ("server { listen 80; listen [::]:80; root /a; }", true),
        ("server { listen [::]:80; root /a; }", false),
        (
            "server { listen [::]:80; root /a; }\nserver { listen 80; server_name b; root /a; }",
            true,
        ),
        ("server { listen 80; return 444; }", true),
        ("server { listen 80; return 403; }", true),
        (
            "server { listen 80; location / { proxy_pass http://h; proxy_set_header Host $host; } }",
            true,
        ),
        (
            "server { listen 80; location / { proxy_pass http://h; proxy_set_header Host \
             $host:$server_port; } }",
            true,
        ),
    ] {
        let imported = imported(text);
        assert_eq!(imported.is_complete, is_complete, "{text}\n{}", imported.text);
    }
}

/// A missing script gets 404 where nginx has it, and not the front controller.
#[test]
fn missing_scripts_have_the_404_of_their_location() {
    let server = |check: &str| {
        host(&format!(
            "root /a; index index.php; location / {{ try_files $uri $uri/ /index.php?$args; }}\n\
             location ~ \\.php$ {{ {check} fastcgi_pass h:9;\n\
             fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }}"
        ))
    };
    let route = "\"~ \\\\.php$\" = { fastcgi = \"h:9\", root = \"/a\" }\n";
    for check in ["try_files $uri =404;", "if (!-f $request_filename) { return 404; }"] {
        let (found, _) = server(check);
        assert!(found.contains(route) && found.contains("fallback = \"index.php\""), "{found}");
    }
    let (found, _) = server("");
    assert!(!found.contains(route) && found.contains("fallback = \"index.php\""), "{found}");
}

/// `try_files $uri =404` looks for a file of the whole path.
#[test]
fn paths_behind_a_script_are_refused_where_nginx_refuses_them() {
    let server = |regex: &str, check: &str| {
        host(&format!(
            "root /a; location ~ {regex} {{ {check} fastcgi_pass h:9;\n\
             fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }}"
        ))
    };
    for (regex, check, scripts) in [
        ("\\.php(/|$)", "try_files $uri =404;", ", scripts = [\"~ \\\\.php$\"]"),
        ("^/(a|b)\\.php(/|$)", "try_files $uri =404;", ", scripts = [\"~ ^/(a|b)\\\\.php$\"]"),
        ("\\.php(/|$)", "try_files $fastcgi_script_name =404;", ""),
        ("\\.php$", "try_files $uri =404;", ""),
    ] {
        let (found, is_complete) = server(regex, check);
        let route = format!("= {{ fastcgi = \"h:9\", root = \"/a\"{scripts} }}\n");
        assert!(found.contains(&route) && is_complete, "{regex} {check}\n{found}");
    }
}

/// A condition that is always met was taken for one about methods, and was lost.
#[test]
fn conditions_of_all_requests_respond() {
    let text = "geo $g { default 1; 10.0.0.0/8 2; } server { listen 80; ";
    for server in [
        "location /a { if ($g) { return 410; } return 200 b; } }",
        "if ($g) { return 410; } location /a { return 200 b; } }",
        "set $x 1; location /a { if ($x) { return 410; } return 200 b; } }",
    ] {
        let imported = imported(&format!("{text}{server}"));
        let route = "\"/a\" = { respond = \"\", status = 410 }\n";
        assert!(imported.text.contains(route), "{server}\n{}", imported.text);
        assert!(imported.is_complete, "{}", imported.text);
    }
    // The redirect has an expression as its key, which precedes prefixes.
    let (found, is_complete) =
        host("location /a/ { if ($http_a = b) { return 403; } return 301 /c?d=e; }");
    let key = "\"~ ^/a/ @a\" = { respond = \"\", status = 403";
    assert!(is_complete && found.contains(key), "{found}");
    let (found, is_complete) = host(
        "location / { if ($request_method = POST) { return 405; } \
         if ($request_method = POST) { return 403; } proxy_pass http://h; }",
    );
    assert!(is_complete && found.contains("status = 405"), "{found}");
}

/// In nginx, `location /x` also has the path `/xy`. Each row: its directives, and the route of
/// `/xy`, if it is not the route of the location around it.
#[test]
fn siblings_of_locations_with_rules_have_the_same_rules() {
    const PROXY: &str = "{ proxy = \"http://b:1/\", host = \"upstream\"";
    let respond = |status: u16| format!("{{ respond = \"\", status = {status} }}");
    for (directives, methods, expected) in [
        ("limit_except GET { deny all; }", "GET ", PROXY.to_owned()),
        ("if ($request_method = POST) { return 405; }", "POST ", respond(405)),
        ("if ($request_method ~ ^(PUT|DELETE)$) { return 403; }", "PUT,DELETE ", respond(403)),
        ("if ($http_a) { return 403; }", "", respond(403)),
        ("client_max_body_size 10;", "", format!("{PROXY}, max_body_bytes = \"10B\"")),
        ("return 410;", "", respond(410)),
        ("return 503;", "", respond(503)),
        ("deny all;", "", respond(403)),
        ("proxy_pass http://b:1/c; client_max_body_size 10;", "", respond(403)),
        ("proxy_read_timeout 10s;", "", String::new()),
    ] {
        let has_response = ["return", "proxy_pass"].iter().any(|it| directives.starts_with(it));
        let pass = if has_response { "" } else { "proxy_pass http://b:1;" };
        let text = format!(
            "client_max_body_size 1m; location / {{ proxy_pass http://a:1; }} \
             location /x {{ {directives} {pass} }}"
        );
        let (found, _) = host(&text);
        match &*expected {
            "" => assert!(!found.contains("[^/]"), "{directives}\n{found}"),
            table => {
                let route = format!("\"{methods}~ ^/x[^/]\" = {table}");
                assert!(found.contains(&route), "{directives}\n{found}");
            }
        }
    }
}

/// The scripts of a nested location are excluded below its prefix only.
#[test]
fn scripts_of_nested_locations_exclude_no_others() {
    const PASS: &str = "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n\
                        fastcgi_pass unix:/p;";
    let (found, _) = host(&format!(
        "root /a; index index.php;\n\
         location ^~ /admin/ {{ allow 10.0.0.0/8; deny all; location ~ \\.php$ {{ {PASS} }} }}\n\
         location / {{ try_files $uri $uri/ /index.php?$args; }}\n\
         location ~ \\.php$ {{ {PASS} }}"
    ));
    assert!(!found.contains("\"!~ \\\\.php$\""), "{found}");
    assert!(found.contains("!~ ^/admin(?:/.*)?(?:\\\\.php$)"), "{found}");
}
