//! Global options.

use super::handlers::{size, time};
use super::matcher::networks;
use super::notes::Notes;
use super::tree::Directive;
use crate::document::{Document, Value};

/// Global options that change how sites are read.
pub(super) struct Global {
    pub(super) http_port: u16,
    pub(super) https_port: u16,
    /// Sites with a name have TLS by default.
    pub(super) has_auto_https: bool,
    /// Requests without TLS are redirected.
    pub(super) has_redirects: bool,
    pub(super) has_local_certificates: bool,
    pub(super) bind: Vec<String>,
}

impl Global {
    pub(super) fn new(options: &[Directive]) -> Global {
        let option = |name: &str| options.iter().rfind(|option| option.name == name);
        let port = |name: &str, default: u16| {
            option(name).and_then(|it| it.arg(0).parse().ok()).unwrap_or(default)
        };
        let auto = option("auto_https").map_or("", |it| it.arg(0));
        Global {
            http_port: port("http_port", 80),
            https_port: port("https_port", 443),
            has_auto_https: auto != "off",
            has_redirects: !matches!(auto, "off" | "disable_redirects"),
            has_local_certificates: option("local_certs").is_some(),
            bind: option("default_bind").map(|it| it.args.clone()).unwrap_or_default(),
        }
    }
}

/// Translates the options that do not change sites.
pub(super) fn translate(options: &[Directive], notes: &Notes, document: &mut Document) {
    for option in options {
        let first = option.arg(0);
        match &*option.name {
            "http_port"
            | "https_port"
            | "auto_https"
            | "local_certs"
            | "default_bind"
            | "order"
            | "skip_install_trust"
            | "persist_config"
            | "renew_interval"
            | "storage_clean_interval" => {}
            "admin" if first == "off" => {}
            "admin" => notes.adapted(option, "`[status] config_changes` permits changes"),
            "debug" => document.section("log").set("level", "debug"),
            "email" => document.section("acme").set("email", first),
            "acme_ca" => document.section("acme").set("directories", [first]),
            "acme_ca_root" => document.section("acme").set("ca", first),
            "acme_eab" => notes.lost(option, "`[acme] eab_key_id` and `eab_key` have files"),
            "on_demand_tls" => on_demand(option, notes, document),
            "grace_period" => {
                document.top.set_some("drain_timeout", time(first));
            }
            "shutdown_delay" => notes.lost(option, "there is no equivalent"),
            "log" => error_log(option, notes, document),
            "servers" => {
                option.children().iter().for_each(|it| server(it, notes, document));
            }
            "metrics" => notes.lost(option, "`[status] listen` has the metrics"),
            _ => notes.lost(option, "there is no equivalent"),
        }
    }
}

fn on_demand(option: &Directive, notes: &Notes, document: &mut Document) {
    for child in option.children() {
        match &*child.name {
            "ask" => document.section("acme").set("on_demand_ask", child.arg(0)),
            _ => notes.lost(child, "`[acme] on_demand_rate` limits the rate"),
        }
    }
}

/// Translates `log` of the global options, the log of errors.
fn error_log(option: &Directive, notes: &Notes, document: &mut Document) {
    for child in option.children() {
        match (&*child.name, child.arg(0)) {
            ("output", "file") => document.section("log").set("error", child.arg(1)),
            ("output", "stderr") | ("format" | "include" | "exclude", _) => {}
            ("level", level) => {
                let level = level.to_ascii_lowercase();
                if matches!(&*level, "error" | "warn" | "info" | "debug") {
                    document.section("log").set("level", level);
                }
            }
            _ => notes.lost(child, "there is no equivalent"),
        }
    }
}

fn server(option: &Directive, notes: &Notes, document: &mut Document) {
    match (&*option.name, option.arg(0)) {
        ("trusted_proxies", "static") => {
            let all = option.args[1..].iter().flat_map(|it| networks(it));
            document.top.set("trusted_proxies", all.collect::<Vec<String>>());
        }
        ("client_ip_headers", name) if option.args.len() == 1 => {
            document.top.set("client_ip_header", name);
        }
        ("max_header_size", text) => match size(text) {
            Some(size) => document.section("limits").set("max_head_bytes", size),
            None => notes.lost(option, "the size is invalid"),
        },
        ("timeouts", _) => {
            for child in option.children() {
                let key = match &*child.name {
                    "read_header" => "head_timeout",
                    "idle" => "idle_timeout",
                    "read_body" | "write" => "stall_timeout",
                    _ => continue,
                };
                let time = time(child.arg(0)).map(Value::from);
                document.section("limits").set_some(key, time);
            }
        }
        ("protocols" | "strict_sni_host" | "trusted_proxies_strict" | "protocol", _) => {}
        ("keepalive_interval" | "log_credentials" | "name" | "enable_full_duplex", _) => {}
        ("metrics", _) => notes.lost(option, "`[status] listen` has the metrics"),
        ("listener_wrappers", _) => wrappers(option, notes, document),
        _ => notes.lost(option, "there is no equivalent"),
    }
}

/// Translates the wrapper `proxy_protocol`.
fn wrappers(option: &Directive, notes: &Notes, document: &mut Document) {
    for child in option.children() {
        match &*child.name {
            "proxy_protocol" => match child.child("allow") {
                Some(allow) => {
                    document.section("limits").set("proxy_protocol", allow.args.clone());
                }
                None => notes.lost(child, "`proxy_protocol` has the networks of the proxies"),
            },
            "tls" => {}
            _ => notes.lost(child, "there is no equivalent"),
        }
    }
}
