//! Caches of nginx.

use super::imported;

/// Imports a location with a cache, and returns the value of `response_cache`, and the notes.
#[track_caller]
fn cache(directives: &str) -> (Option<String>, String) {
    let text = format!(
        "http {{\nproxy_cache_path /c keys_zone=z:8m inactive=1h;\nmap $http_a $m {{ default 0; ~x 1; }}\n\
         server {{\nlisten 80; server_name a.example;\nlocation / {{ proxy_pass http://127.0.0.1:9;\n\
         proxy_cache z;\n{directives} }} }} }}\n"
    );
    let text = imported(&text).text;
    let value = text.lines().find_map(|line| line.split_once("response_cache = "));
    let value = value.map(|(_, value)| value.strip_suffix(" }").unwrap_or(value).to_owned());
    let value = value.or_else(|| sub_table(&text));
    let notes = text.lines().filter(|line| line.starts_with('#')).collect::<Vec<_>>().join("\n");
    (value, notes)
}

/// Returns a long value, which is a table of its own, as if it were short.
fn sub_table(text: &str) -> Option<String> {
    let (_, table) = text.split_once(".response_cache]\n")?;
    let keys: Vec<&str> = table.lines().take_while(|line| line.contains('=')).collect();
    Some(format!("{{ {}", keys.join(", ")))
}

const REST: &str = "heuristic = false, ignore_client = true";

#[test]
fn imports_caches() {
    for (directives, expected) in [
        ("", ""),
        ("proxy_cache_valid 10m;", "lifetimes = { 200 = \"10m\", 301 = \"10m\", 302 = \"10m\" }, "),
        (
            "proxy_cache_valid 404 1m; proxy_cache_valid any 5s;",
            "lifetimes = { 404 = \"60s\", 100-599 = \"5s\" }, ",
        ),
        ("proxy_cache_key $scheme$proxy_host$request_uri;", ""),
        ("proxy_cache_key $host$uri;", "query = [], "),
        ("proxy_cache_key $host$uri$arg_page;", "query = [\"page\"], "),
        ("proxy_cache_key \"$host$request_uri $cookie_lang\";", "key_cookies = [\"lang\"], "),
        ("proxy_cache_key $request_uri$http_x_tenant;", "key_fields = [\"x-tenant\"], "),
        (
            "proxy_no_cache $cookie_session; proxy_cache_bypass $cookie_session $arg_new;",
            "bypass = [{ cookie = { session = \"~ ^(?:[^0]|0.)\" } }], refresh = [{ query = { new = \"~ ^(?:[^0]|0.)\" } }], ",
        ),
        (
            "proxy_no_cache $cookie_session;",
            "no_store = [{ cookie = { session = \"~ ^(?:[^0]|0.)\" } }], ",
        ),
        ("proxy_cache_use_stale error timeout http_500;", "stale_if_error = \"60m\", "),
        (
            "proxy_cache_use_stale error updating; proxy_cache_background_update on;",
            "stale_if_error = \"60m\", stale_while_revalidate = \"60m\", ",
        ),
        ("proxy_cache_use_stale off;", ""),
        ("proxy_cache_min_uses 3;", "min_uses = 3, "),
        ("proxy_cache_lock on; proxy_cache_lock_timeout 2s;", "collapse_timeout = \"2s\", "),
        ("proxy_ignore_headers Set-Cookie;", "store_cookies = true, "),
    ] {
        let (value, notes) = cache(directives);
        let value = value.unwrap_or_else(|| panic!("{directives}: no cache\n{notes}"));
        let plain = value.replace("\"200\"", "200").replace("\"301\"", "301");
        let plain = plain.replace("\"302\"", "302").replace("\"404\"", "404");
        let plain = plain.replace("\"100-599\"", "100-599");
        assert_eq!(plain, format!("{{ {expected}{REST}"), "{directives}");
        assert!(notes.contains("all zones are one store"), "{notes}");
    }
}

/// A condition or a key that is lost could have private responses sent to everybody.
#[test]
fn a_cache_whose_conditions_are_lost_is_lost() {
    for (directives, note) in [
        (
            "set $skip 0; if ($http_b) { set $skip 1; } proxy_no_cache $skip;",
            "the route has no cache",
        ),
        ("proxy_cache_bypass $geoip_city;", "the route has no cache: $geoip_city"),
        ("proxy_cache_key $host;", "its key does not have the path"),
        ("proxy_cache_key $request_uri$geoip_country_code;", "its key has $geoip_country_code"),
    ] {
        let (value, notes) = cache(directives);
        assert_eq!(value, None, "{directives}");
        assert!(notes.contains(note), "{directives}: {notes}");
    }
    assert!(cache("proxy_no_cache $http_b;").0.is_some());
}

#[test]
fn differences_are_reported() {
    for (directives, note) in [
        ("proxy_cache_methods GET POST;", "responses to POST are not stored"),
        ("proxy_cache_valid 200 0;", "a time of 0 has no equivalent"),
        ("proxy_ignore_headers Cache-Control;", "the lifetime that a response states"),
        ("proxy_cache_use_stale error http_404;", "500, 502, 503 and 504 only"),
    ] {
        let (value, notes) = cache(directives);
        assert!(value.is_some() && notes.contains(note), "{directives}: {notes}");
    }
    assert!(!cache("proxy_cache_methods GET HEAD;").1.contains("POST"));
}

#[test]
fn imports_folders_of_caches() {
    let text = |paths: &str| {
        let server = "server { listen 80; server_name a.example; location / { \
                      proxy_pass http://127.0.0.1:9; proxy_cache a; } \
                      location /b/ { fastcgi_pass 127.0.0.1:9; fastcgi_cache b; } }";
        imported(&format!("http {{\n{paths}\n{server}\n}}\n")).text
    };
    for (paths, expected) in [
        (
            "proxy_cache_path /c keys_zone=a:8m max_size=2g;",
            "folder = \"/c/weft\"\ndisk = \"2GiB\"\n",
        ),
        ("proxy_cache_path /c/ levels=1:2 keys_zone=a:8m;", "folder = \"/c/weft\"\n\n"),
        (
            "proxy_cache_path /c keys_zone=a:8m max_size=2g; fastcgi_cache_path /d keys_zone=b:1m \
             max_size=512m;",
            "folder = \"/c/weft\"\ndisk = \"2560MiB\"\n",
        ),
    ] {
        let text = text(paths);
        let (_, section) = text.split_once("[response_cache]\n").expect(paths);
        assert!(section.starts_with(expected), "{paths}: {section}");
    }
    assert!(!text("proxy_cache_path /c keys_zone=unused:8m;").contains("folder"));
}
