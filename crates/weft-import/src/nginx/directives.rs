//! Names of directives that need no translation of their own. Pure.

use super::values::lists;

/// Handling of a directive that nothing has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Translated by the files of this folder. If none has read it, it applies to no location: each has
    /// its own, or none could use it.
    Translated,
    /// The directive sets the default behavior of Weft, or tunes something that has no setting there.
    Default,
    /// There is no equivalent, for this reason.
    Lost(&'static str),
}

/// Directives that other files of this folder read.
const TRANSLATED: &str = "
    http stream server location upstream map include
    listen server_name ssl_certificate ssl_certificate_key ssl_protocols ssl
    ssl_client_certificate ssl_verify_client more_set_headers more_clear_headers
    root alias index autoindex try_files error_page expires add_header default_type
    return rewrite if set limit_except empty_gif
    proxy_pass proxy_set_header proxy_hide_header proxy_redirect proxy_cookie_path
    proxy_cookie_domain proxy_buffering proxy_request_buffering proxy_connect_timeout
    proxy_read_timeout proxy_max_temp_file_size proxy_intercept_errors
    proxy_ssl_certificate proxy_ssl_certificate_key proxy_ssl_name
    grpc_ssl_certificate grpc_ssl_certificate_key grpc_ssl_name
    proxy_ssl proxy_protocol proxy_timeout proxy_responses preread_timeout ssl_handshake_timeout ssl_preread
    proxy_ssl_trusted_certificate proxy_ssl_verify proxy_next_upstream_tries proxy_next_upstream
    grpc_pass grpc_set_header grpc_connect_timeout grpc_read_timeout grpc_next_upstream
    grpc_next_upstream_tries grpc_ssl_verify grpc_ssl_trusted_certificate
    allow deny satisfy auth_basic auth_basic_user_file auth_request auth_request_set internal
    limit_req limit_req_zone limit_req_status limit_conn limit_conn_zone limit_conn_status
    client_max_body_size limit_rate limit_rate_after
    underscores_in_headers ignore_invalid_headers valid_referers
    gzip gzip_comp_level brotli zstd access_log error_log log_format
    user worker_processes pid worker_connections
    set_real_ip_from real_ip_header real_ip_recursive
    sub_filter sub_filter_types sub_filter_once
    keepalive keepalive_requests keepalive_timeout client_header_timeout client_body_timeout
    send_timeout large_client_header_buffers lingering_timeout
    fastcgi_pass fastcgi_param fastcgi_index fastcgi_split_path_info fastcgi_read_timeout
    fastcgi_connect_timeout fastcgi_keep_conn fastcgi_buffering fastcgi_request_buffering
    scgi_pass scgi_param scgi_connect_timeout scgi_read_timeout scgi_buffering scgi_request_buffering
    scgi_max_temp_file_size scgi_intercept_errors scgi_hide_header
    uwsgi_pass uwsgi_param uwsgi_connect_timeout uwsgi_read_timeout uwsgi_buffering
    uwsgi_request_buffering uwsgi_max_temp_file_size uwsgi_intercept_errors uwsgi_hide_header
    fastcgi_intercept_errors fastcgi_hide_header fastcgi_max_temp_file_size
";

/// Directives whose purpose Weft fulfills by default.
const DEFAULTS: &str = "
    events use multi_accept accept_mutex worker_cpu_affinity worker_rlimit_nofile worker_priority
    worker_shutdown_timeout worker_aio_requests daemon master_process pcre_jit thread_pool
    sendfile sendfile_max_chunk tcp_nopush tcp_nodelay aio aio_write directio output_buffers
    open_file_cache open_file_cache_valid open_file_cache_min_uses open_file_cache_errors
    read_ahead merge_slashes server_tokens types_hash_max_size types_hash_bucket_size
    server_names_hash_max_size server_names_hash_bucket_size variables_hash_max_size
    variables_hash_bucket_size map_hash_max_size map_hash_bucket_size http2 types mime_types
    gzip_vary gzip_types gzip_min_length gzip_proxied gzip_buffers
    gzip_http_version gzip_disable gzip_static gunzip brotli_types brotli_comp_level brotli_static
    brotli_min_length zstd_types zstd_comp_level zstd_static zstd_min_length
    ssl_ciphers ssl_prefer_server_ciphers ssl_ecdh_curve ssl_dhparam ssl_session_cache
    ssl_session_timeout ssl_session_tickets ssl_buffer_size ssl_conf_command ssl_early_data
    keepalive_disable reset_timedout_connection lingering_close lingering_time
    client_body_buffer_size client_body_temp_path client_body_in_file_only
    client_body_in_single_buffer client_header_buffer_size connection_pool_size request_pool_size
    postpone_output absolute_redirect port_in_redirect server_name_in_redirect log_not_found
    log_subrequest autoindex_exact_size autoindex_localtime charset charset_types
    source_charset override_charset etag if_modified_since max_ranges
    proxy_http_version proxy_buffers proxy_buffer_size proxy_busy_buffers_size
    proxy_temp_file_write_size proxy_temp_path proxy_headers_hash_max_size
    proxy_headers_hash_bucket_size proxy_socket_keepalive proxy_ssl_session_reuse
    proxy_ssl_server_name proxy_ssl_protocols proxy_ssl_ciphers proxy_ssl_verify_depth
    proxy_send_timeout proxy_next_upstream_timeout proxy_force_ranges keepalive_time zone
    resolver resolver_timeout limit_req_log_level limit_conn_log_level rewrite_log
    uninitialized_variable_warn load_module fastcgi_buffers fastcgi_buffer_size
    fastcgi_busy_buffers_size fastcgi_temp_path fastcgi_temp_file_write_size fastcgi_send_timeout fastcgi_socket_keepalive fastcgi_next_upstream fastcgi_pass_header fastcgi_ignore_headers uwsgi_temp_path scgi_temp_path
    scgi_buffers scgi_buffer_size scgi_busy_buffers_size scgi_temp_file_write_size scgi_send_timeout
    uwsgi_buffers uwsgi_buffer_size uwsgi_busy_buffers_size uwsgi_temp_file_write_size
    uwsgi_send_timeout uwsgi_socket_keepalive uwsgi_next_upstream uwsgi_pass_header
    uwsgi_ignore_headers scgi_socket_keepalive scgi_next_upstream scgi_pass_header scgi_ignore_headers auth_delay
    grpc_buffer_size grpc_send_timeout grpc_socket_keepalive grpc_ssl_server_name grpc_ssl_protocols
    grpc_ssl_ciphers grpc_ssl_session_reuse grpc_next_upstream_timeout
    access_log_cache open_log_file_cache
    break proxy_pass_header proxy_ignore_headers proxy_cache_valid proxy_cache_key proxy_cache_use_stale
    proxy_cache_lock proxy_cache_bypass proxy_no_cache proxy_cache_methods proxy_cache_min_uses
    proxy_cache_revalidate proxy_cache_background_update sub_filter_last_modified passenger_friendly_error_pages
";

/// Directives without an equivalent, each with the reason.
const LOST: [(&str, &str); 19] = [
    ("mail", "Weft has no proxy for mail"),
    ("proxy_method", "upstreams get the method of the client"),
    ("proxy_pass_request_headers", "upstreams get the fields of the client"),
    ("proxy_pass_request_body", "upstreams get the body of the client"),
    ("memcached_pass", "Weft has no client of memcached"),
    ("proxy_cache", "Weft has no cache for responses of upstreams"),
    ("proxy_cache_path", "Weft has no cache for responses of upstreams"),
    ("proxy_store", "Weft does not store responses of upstreams"),
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
        _ if name.starts_with("fastcgi_cache") => {
            Some(Treatment::Lost("Weft has no cache for responses of upstreams"))
        }
        _ => None,
    }
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
