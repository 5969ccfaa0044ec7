//! Imported `stream` blocks.

use super::*;

/// Imports a `stream` block without servers of HTTP; returns the text behind the comments that all
/// results have.
#[track_caller]
fn streams(directives: &str) -> (String, bool) {
    let Imported { text, is_complete } = imported(&format!("stream {{\n{directives}\n}}\n"));
    (text.trim_start_matches(weft_import::NGINX_DIFFERENCES).trim_start().to_owned(), is_complete)
}

#[test]
fn imports_streams() {
    for (directives, is_complete, expected) in [
        (
            "proxy_connect_timeout 3s;\n\
             server { listen 5432; proxy_pass 10.0.0.5:5432; proxy_timeout 1h; }",
            true,
            "[streams.\"0.0.0.0:5432\"]\nto = \"10.0.0.5:5432\"\nidle_timeout = \"60m\"\n\
             connect_timeout = \"3s\"\n",
        ),
        (
            "upstream db { least_conn; server 10.0.0.5:5432; server unix:/run/a; \
             server 10.0.0.6:5432 down; }\n\
             server { listen 127.0.0.1:5432; listen [::1]:5432; proxy_pass db; proxy_protocol on; }",
            true,
            "[streams.\"127.0.0.1:5432 [::1]:5432\"]\nbalance = \"least-connections\"\n\
             to = [\"10.0.0.5:5432\", \"unix:/run/a\"]\nproxy_protocol = \"v1\"\n",
        ),
        (
            "server { listen 53 udp; proxy_pass 10.0.0.5:53; proxy_responses 1; proxy_timeout 5s; }",
            true,
            "[streams.\"udp://0.0.0.0:53\"]\nto = \"10.0.0.5:53\"\nudp_idle_timeout = \"5s\"\n\
             udp_responses = 1\n",
        ),
        (
            "map $ssl_preread_server_name $to { hostnames; .a.example 10.0.0.1:443; \
             b.example b; default 10.0.0.3:443; }\n\
             upstream b { server 10.0.0.2:443; server 10.0.0.4:443; }\n\
             server { listen 443; ssl_preread on; preread_timeout 5s; proxy_pass $to; }",
            true,
            "[streams.\"0.0.0.0:443\"]\nserver_names = { \"a.example\" = \"10.0.0.1:443\", \
             \"*.a.example\" = \"10.0.0.1:443\", \"b.example\" = \"10.0.0.2:443 10.0.0.4:443\" }\n\
             to = \"10.0.0.3:443\"\nhandshake_timeout = \"5s\"\n",
        ),
        (
            "limit_conn_zone $binary_remote_addr zone=a:10m; ssl_certificate /a.pem; \
             ssl_certificate_key /a.key;\n\
             server { listen 993 ssl proxy_protocol; set_real_ip_from 10.0.0.0/8; limit_conn a 10; \
             proxy_pass 127.0.0.1:143; }",
            true,
            "[tls]\ncertificates = [{ cert = \"/a.pem\", key = \"/a.key\" }]\n\n\
             [streams.\"0.0.0.0:993\"]\nto = \"127.0.0.1:143\"\nmax_connections_per_client = 10\n\
             tls = true\nproxy_protocol_from = [\"10.0.0.0/8\"]\n",
        ),
        (
            "upstream a { server 10.0.0.1:1 max_fails=5 fail_timeout=30s; server 10.0.0.2:1; }\n\
             server { listen 3; proxy_pass a; }",
            true,
            "[streams.\"0.0.0.0:3\"]\nmax_failures = 5\nfailure_window = \"30s\"\n\
             down_time = \"30s\"\nto = [\"10.0.0.1:1\", \"10.0.0.2:1\"]\n",
        ),
        (
            "server { listen 6379; proxy_pass a.example:6380; proxy_ssl on; proxy_ssl_verify on; \
             proxy_ssl_trusted_certificate /ca.pem; }",
            true,
            "[streams.\"0.0.0.0:6379\"]\nto = \"tls://a.example:6380\"\nca = \"/ca.pem\"\n",
        ),
        (
            "deny 192.0.2.1;\n\
             server { listen 1; proxy_pass 127.0.0.1:2; deny 10.1.0.0/16; allow 10.0.0.0/8; \
             allow ::1; deny all; }\n\
             server { listen 3; proxy_pass 127.0.0.1:4; }\n\
             server { listen 5; proxy_pass 127.0.0.1:6; deny all; }\n\
             server { listen 7; proxy_pass 127.0.0.1:8; allow all; }",
            true,
            "[streams.\"0.0.0.0:1\"]\nto = \"127.0.0.1:2\"\nallow = [\"10.0.0.0/8\", \"::1\"]\n\
             deny = [\"10.1.0.0/16\"]\n\n\
             [streams.\"0.0.0.0:3\"]\nto = \"127.0.0.1:4\"\ndeny = [\"192.0.2.1\"]\n\n\
             [streams.\"0.0.0.0:5\"]\nto = \"127.0.0.1:6\"\ndeny = [\"0.0.0.0/0\", \"::/0\"]\n\n\
             [streams.\"0.0.0.0:7\"]\nto = \"127.0.0.1:8\"\n",
        ),
        (
            "server { listen 1; proxy_pass 127.0.0.1:2; allow 10.1.0.0/16; deny 10.0.0.0/8; }\n\
             server { listen 3; proxy_pass 127.0.0.1:4; }",
            false,
            "# nginx.conf:2: `server`: not carried over: see the notes of its directives\n\
             # nginx.conf:2: `deny 10.0.0.0/8`: not carried over: `deny` has precedence over `allow` \
             in Weft\n\n\
             [streams.\"0.0.0.0:3\"]\nto = \"127.0.0.1:4\"\n",
        ),
        (
            "server { listen 1; proxy_pass $upstream; }\n\
             server { listen 3; proxy_pass 127.0.0.1:4; }\n\
             server { listen 3; proxy_pass 127.0.0.1:5; }",
            false,
            "# nginx.conf:2: `server`: not carried over: see the notes of its directives\n\
             # nginx.conf:4: `server`: not carried over: see the notes of its directives\n\
             # nginx.conf:2: `proxy_pass $upstream`: not carried over: its address depends on a \
             variable other than the server name of TLS\n\
             # nginx.conf:4: `listen 3`: not carried over: another server has this address\n\n\
             [streams.\"0.0.0.0:3\"]\nto = \"127.0.0.1:4\"\n",
        ),
        (
            "upstream a { random two; server 10.0.0.1:1 weight=3; server 10.0.0.2:1 backup; \
             server 10.0.0.3:1 max_conns=9 weight=1; server 10.0.0.4:1 weight=0; }\n\
             upstream b { hash $remote_addr consistent; server 10.0.0.1:1; }\n\
             server { listen 3; proxy_pass a; root /srv; }\n\
             server { listen 4; proxy_pass b; }",
            false,
            "# nginx.conf:2: `server 10.0.0.4:1 weight=0`: not carried over: streams have no \
             `weight`\n\n\
             # nginx.conf:4: `root /srv`: not carried over: it has no equivalent for streams\n\
             [streams.\"0.0.0.0:3\"]\nbalance = \"random-two\"\nto = [\"10.0.0.1:1 weight=3\", \
             \"10.0.0.2:1 backup\", \"10.0.0.3:1 max_connections=9\", \"10.0.0.4:1\"]\n\n\
             [streams.\"0.0.0.0:4\"]\nbalance = \"hash\"\nto = \"10.0.0.1:1\"\n",
        ),
    ] {
        let found = streams(directives);
        assert_eq!((&*found.0, found.1), (expected, is_complete), "{directives}");
    }
}
