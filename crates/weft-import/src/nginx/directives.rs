//! Names of directives that need no translation of their own. Pure.

use crate::values::lists;

/// Handling of a directive that nothing has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Other files of this folder translate the directive. If none has read it, it applies to no
    /// location.
    Translated,
    /// The directive sets the default behavior of Weft, or tunes something that has no setting
    /// there.
    Default,
    /// There is no equivalent, for this reason.
    Lost(&'static str),
}

/// Directives that other files of this folder read.
const TRANSLATED: &str = "
    access_log add_header alias allow auth_basic auth_basic_user_file auth_request
    auth_request_set autoindex brotli client_body_timeout client_header_timeout
    client_max_body_size default_type deny empty_gif error_log error_page expires
    fastcgi_buffering fastcgi_connect_timeout fastcgi_hide_header fastcgi_index
    fastcgi_intercept_errors fastcgi_keep_conn fastcgi_max_temp_file_size fastcgi_param
    fastcgi_pass fastcgi_read_timeout fastcgi_request_buffering fastcgi_split_path_info geo
    grpc_connect_timeout grpc_next_upstream grpc_next_upstream_tries grpc_pass grpc_read_timeout
    grpc_set_header grpc_ssl_certificate grpc_ssl_certificate_key grpc_ssl_name
    grpc_ssl_trusted_certificate grpc_ssl_verify gzip gzip_comp_level http http3 if
    ignore_invalid_headers include index internal keepalive keepalive_requests keepalive_timeout
    large_client_header_buffers limit_conn limit_conn_status limit_conn_zone limit_except
    limit_rate limit_rate_after limit_req limit_req_status limit_req_zone lingering_timeout listen
    location log_format map more_clear_headers more_set_headers pid preread_timeout
    proxy_buffering proxy_connect_timeout proxy_cookie_domain proxy_cookie_flags
    proxy_cookie_path proxy_hide_header
    proxy_intercept_errors proxy_max_temp_file_size proxy_next_upstream proxy_next_upstream_tries
    proxy_pass proxy_protocol proxy_read_timeout proxy_redirect proxy_request_buffering
    proxy_responses proxy_set_header proxy_ssl proxy_ssl_certificate proxy_ssl_certificate_key
    proxy_ssl_name proxy_ssl_trusted_certificate proxy_ssl_verify proxy_timeout real_ip_header
    real_ip_recursive return rewrite root satisfy scgi_buffering scgi_connect_timeout
    scgi_hide_header scgi_intercept_errors scgi_max_temp_file_size scgi_param scgi_pass
    scgi_read_timeout scgi_request_buffering send_timeout server server_name set set_real_ip_from
    ssl ssl_certificate ssl_certificate_key ssl_client_certificate ssl_early_data
    ssl_handshake_timeout ssl_preread ssl_protocols ssl_verify_client stream sub_filter sub_filter_once sub_filter_types
    split_clients try_files underscores_in_headers upstream user uwsgi_buffering uwsgi_connect_timeout
    uwsgi_hide_header uwsgi_intercept_errors uwsgi_max_temp_file_size uwsgi_param uwsgi_pass
    uwsgi_read_timeout uwsgi_request_buffering valid_referers worker_connections worker_processes
    zstd
";

/// Directives whose purpose Weft fulfills by default.
const DEFAULTS: &str = "
    absolute_redirect accept_mutex access_log_cache aio aio_write auth_delay autoindex_exact_size
    autoindex_localtime break brotli_comp_level brotli_min_length brotli_static brotli_types
    charset charset_types client_body_buffer_size client_body_in_file_only
    client_body_in_single_buffer client_body_temp_path client_header_buffer_size
    connection_pool_size daemon directio etag events fastcgi_buffer_size fastcgi_buffers
    fastcgi_busy_buffers_size fastcgi_ignore_headers fastcgi_next_upstream fastcgi_pass_header
    fastcgi_send_timeout fastcgi_socket_keepalive fastcgi_temp_file_write_size fastcgi_temp_path
    grpc_buffer_size grpc_next_upstream_timeout grpc_send_timeout grpc_socket_keepalive
    grpc_ssl_ciphers grpc_ssl_protocols grpc_ssl_server_name grpc_ssl_session_reuse gunzip
    gzip_buffers gzip_disable gzip_http_version gzip_min_length gzip_proxied gzip_static
    gzip_types gzip_vary http2 http3_hq http3_max_concurrent_streams http3_stream_buffer_size
    if_modified_since keepalive_disable keepalive_time
    limit_conn_log_level limit_req_log_level lingering_close lingering_time load_module
    log_not_found log_subrequest map_hash_bucket_size map_hash_max_size master_process max_ranges
    merge_slashes mime_types multi_accept open_file_cache open_file_cache_errors
    open_file_cache_min_uses open_file_cache_valid open_log_file_cache output_buffers
    override_charset passenger_friendly_error_pages pcre_jit port_in_redirect postpone_output
    proxy_buffer_size proxy_buffers proxy_busy_buffers_size proxy_force_ranges
    proxy_headers_hash_bucket_size proxy_headers_hash_max_size proxy_http_version
    proxy_ignore_headers proxy_next_upstream_timeout proxy_pass_header
    proxy_send_timeout proxy_socket_keepalive proxy_ssl_ciphers proxy_ssl_protocols
    proxy_ssl_server_name proxy_ssl_session_reuse proxy_ssl_verify_depth
    proxy_temp_file_write_size proxy_temp_path quic_active_connection_id_limit quic_bpf quic_gso
    quic_retry read_ahead request_pool_size
    reset_timedout_connection resolver resolver_timeout rewrite_log scgi_buffer_size scgi_buffers
    scgi_busy_buffers_size scgi_ignore_headers scgi_next_upstream scgi_pass_header
    scgi_send_timeout scgi_socket_keepalive scgi_temp_file_write_size scgi_temp_path sendfile
    sendfile_max_chunk server_name_in_redirect server_names_hash_bucket_size
    server_names_hash_max_size server_tokens source_charset ssl_buffer_size ssl_ciphers
    ssl_conf_command ssl_dhparam ssl_ecdh_curve ssl_prefer_server_ciphers
    ssl_session_cache ssl_session_tickets ssl_session_timeout sub_filter_last_modified tcp_nodelay
    tcp_nopush thread_pool types types_hash_bucket_size types_hash_max_size
    uninitialized_variable_warn use uwsgi_buffer_size uwsgi_buffers uwsgi_busy_buffers_size
    uwsgi_ignore_headers uwsgi_next_upstream uwsgi_pass_header uwsgi_send_timeout
    uwsgi_socket_keepalive uwsgi_temp_file_write_size uwsgi_temp_path variables_hash_bucket_size
    variables_hash_max_size worker_aio_requests worker_cpu_affinity worker_priority
    worker_rlimit_nofile worker_shutdown_timeout zone zstd_comp_level zstd_min_length zstd_static
    zstd_types
";

/// Directives without an equivalent, each with the reason.
const LOST: [(&str, &str); 20] = [
    ("mail", "Weft has no proxy for mail"),
    ("proxy_method", "upstreams get the method of the client"),
    ("proxy_pass_request_headers", "upstreams get the fields of the client"),
    ("proxy_pass_request_body", "upstreams get the body of the client"),
    ("memcached_pass", "Weft has no client of memcached"),
    ("proxy_cache_purge", "clients of the status endpoint purge the cache: `weft cache purge`"),
    ("fastcgi_cache_purge", "clients of the status endpoint purge the cache: `weft cache purge`"),
    ("proxy_store", "Weft does not store responses of upstreams"),
    ("quic_host_key", "`[tls] tickets` names the file of the secret"),
    ("ssl_session_ticket_key", "`[tls] tickets` names one file with all keys, of 48 bytes each"),
    ("ssl_stapling", "Weft has no OCSP, which authorities have ended"),
    ("ssl_stapling_verify", "Weft has no OCSP, which authorities have ended"),
    ("ssl_trusted_certificate", "Weft has no OCSP, which authorities have ended"),
    ("mirror", "`mirror` of a route has the URL of the server that gets the copies"),
    ("stub_status", "use `[status] listen`, an address of its own"),
    ("dav_methods", "Weft has no WebDAV"),
    ("perl_set", "Weft runs no code of nginx"),
    ("js_content", "Weft runs no code of nginx"),
    ("geoip_country", "Weft has no database of countries"),
    ("ssi", "Weft has no server-side includes"),
];

pub(super) fn treatment(name: &str) -> Option<Treatment> {
    if let Some((_, reason)) = LOST.iter().find(|(known, _)| *known == name) {
        return Some(Treatment::Lost(reason));
    }
    if name.ends_with("_by_lua_block") || name.ends_with("_by_lua_file") {
        return Some(Treatment::Lost("Weft runs no code of nginx"));
    }
    match name {
        _ if lists(DEFAULTS, name) => Some(Treatment::Default),
        _ if lists(TRANSLATED, name) => Some(Treatment::Translated),
        _ if is_of_cache(name) => Some(Treatment::Translated),
        _ => None,
    }
}

/// Returns true for directives of the cache of a protocol, such as `fastcgi_cache_valid`.
fn is_of_cache(name: &str) -> bool {
    let behind = ["proxy_", "fastcgi_", "scgi_", "uwsgi_"].map(|prefix| name.strip_prefix(prefix));
    behind.into_iter().flatten().any(|rest| rest.starts_with("cache") || rest == "no_cache")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_treatment() {
        let lost = LOST.iter().map(|(name, _)| *name);
        let mut all: Vec<&str> = TRANSLATED.split_whitespace().collect();
        all.extend(DEFAULTS.split_whitespace().chain(lost));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
