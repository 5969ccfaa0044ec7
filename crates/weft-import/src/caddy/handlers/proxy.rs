//! `reverse_proxy`.

use super::super::chain::{Chain, Flow};
use super::super::matcher::networks;
use super::super::outcome::{Outcome, Responder};
use super::super::tree::Directive;
use super::super::values::placeholders::template;
use super::{fields, time, upstreams};
use crate::document::{Table, Value};

pub(super) fn run(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let transport = directive.child("transport");
    let is_tls = transport.is_some_and(|it| it.children().iter().any(|it| it.name == "tls"));
    let mut addresses = args.to_vec();
    directive.named("to").for_each(|to| addresses.extend(to.args.iter().cloned()));
    let scheme = if is_tls { "https" } else { "http" };
    let urls = match directive.child("dynamic") {
        Some(dynamic) => service(dynamic, scheme).map(|url| vec![url]),
        None => addresses
            .iter()
            .map(|address| upstreams::urls(address, scheme))
            .collect::<Option<Vec<_>>>()
            .map(|all| all.concat()),
    };
    let Some(urls) = urls.filter(|urls| !urls.is_empty()) else {
        chain.lost(directive, "its address has no equivalent; its paths are refused");
        outcome.refuse();
        return Flow::Done;
    };
    if let Some(transport) = transport.filter(|it| it.arg(0) == "fastcgi") {
        return fastcgi(chain, transport, &addresses, outcome);
    }
    let mut table = Table::default();
    table.set("proxy", Value::one_or_list(urls));
    for child in directive.children() {
        option(chain, child, &mut table, outcome);
    }
    outcome.responder = Responder::Proxy(table);
    Flow::Done
}

/// Returns the URL of the servers of `dynamic srv` or `dynamic a`.
fn service(dynamic: &Directive, scheme: &str) -> Option<String> {
    let option = |name: &str| dynamic.child(name).map(|it| it.arg(0));
    match dynamic.arg(0) {
        "srv" => {
            let name = option("name").or(dynamic.args.get(1).map(|it| &**it))?;
            let service = (option("service"), option("proto"));
            let prefix = match service {
                (Some(service), Some(proto)) => format!("_{service}._{proto}."),
                _ => String::new(),
            };
            Some(format!("srv+{scheme}://{prefix}{name}")).filter(|url| !url.contains('{'))
        }
        "a" => {
            let name = option("name").or(dynamic.args.get(1).map(|it| &**it))?;
            let port = option("port").or(dynamic.args.get(2).map(|it| &**it)).unwrap_or("80");
            upstreams::url(&format!("{name}:{port}"), scheme)
        }
        _ => None,
    }
}

/// Translates `transport fastcgi`, an application without files beside it.
fn fastcgi(
    chain: &Chain<'_>,
    transport: &Directive,
    addresses: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let Some(found) = super::files::fastcgi_addresses(chain, transport, addresses, outcome) else {
        return Flow::Done;
    };
    let mut table = Table::default();
    table.set("fastcgi", Value::one_or_list(found));
    super::files::fastcgi_options(chain, transport.children(), &mut table, outcome);
    outcome.responder = Responder::Fastcgi(table);
    Flow::Done
}

fn option(chain: &Chain<'_>, child: &Directive, table: &mut Table, outcome: &mut Outcome) {
    let first = child.arg(0);
    match &*child.name {
        "to" | "dynamic" => {}
        "lb_policy" => balance(chain, child, table),
        "header_up" => header_up(chain, child, table, outcome),
        "header_down" => fields::change(chain, child, &child.args, &fields::RESPONSE, outcome),
        "transport" => child.children().iter().for_each(|it| transport(chain, it, table)),
        "health_uri" | "health_path" => table.set("check", first),
        "health_headers" => {
            let host = child.children().iter().find(|it| it.name.eq_ignore_ascii_case("host"));
            match host {
                Some(host) if child.children().len() == 1 => table.set("check_host", host.arg(0)),
                _ => chain.lost(child, "health checks have the field `Host` only"),
            }
        }
        "health_interval" => set_time(chain, child, "check_interval", table),
        "health_timeout" => set_time(chain, child, "check_timeout", table),
        "health_status" => match first.parse::<u64>() {
            Ok(200..=599) if first.len() == 3 => table.set("check_statuses", first),
            _ => chain.adapted(child, "health checks succeed with a status from 200 to 399"),
        },
        "health_body" => table.set("check_body", first),
        "health_fails" => set_number(chain, child, "check_fall", table),
        "health_passes" => set_number(chain, child, "check_rise", table),
        "max_fails" => set_number(chain, child, "max_failures", table),
        "fail_duration" => set_time(chain, child, "down_time", table),
        "unhealthy_status" => {
            let all: Vec<String> = child.args.iter().flat_map(|it| statuses(it)).collect();
            table.set_filled("failure_statuses", Value::one_or_list(all));
        }
        "unhealthy_latency" => set_time(chain, child, "failure_latency", table),
        "lb_retries" => set_number(chain, child, "max_retries", table),
        "lb_try_duration" => set_time(chain, child, "try_duration", table),
        "lb_try_interval" | "buffer_requests" | "buffer_responses" | "request_buffers"
        | "response_buffers" | "stream_close_delay" => {}
        "stream_timeout" => set_time(chain, child, "tunnel_timeout", table),
        "flush_interval" => {
            if first == "-1" {
                table.set("buffer_responses", false);
            }
        }
        "trusted_proxies" => {
            let all: Vec<String> = child.args.iter().flat_map(|it| networks(it)).collect();
            table.set("trusted", all);
        }
        _ => chain.lost(child, "there is no equivalent"),
    }
}

/// Returns the statuses of failures for `503`, or the usual ones for `5xx`.
fn statuses(text: &str) -> Vec<String> {
    match text.parse::<u64>() {
        Ok(400..=599) => vec![text.to_owned()],
        _ if matches!(text, "5" | "5xx") => ["500", "502", "503", "504"].map(str::to_owned).into(),
        _ => Vec::new(),
    }
}

fn set_time(chain: &Chain<'_>, directive: &Directive, key: &str, table: &mut Table) {
    match time(directive.arg(0)) {
        Some(time) => table.set(key, time),
        None => chain.lost(directive, "the time is 0 or invalid"),
    }
}

fn set_number(chain: &Chain<'_>, directive: &Directive, key: &str, table: &mut Table) {
    let max = match key {
        "max_retries" => 10,
        "max_failures" => 1_000,
        _ => 100,
    };
    match directive.arg(0).parse::<u64>() {
        Ok(number) if (key == "max_retries" || number > 0) && number <= max => {
            table.set(key, number);
        }
        _ => chain.lost(directive, format!("the number is at most {max}")),
    }
}

fn balance(chain: &Chain<'_>, directive: &Directive, table: &mut Table) {
    let key = |field: &str| format!("{{{field}.{}}}", directive.arg(1));
    let hashed = match directive.arg(0) {
        // Turns are as even.
        "round_robin" | "random" => return,
        "least_conn" => return table.set("balance", "least-connections"),
        "random_choose" => return table.set("balance", "random-two"),
        "cookie" => {
            let name = directive.args.get(1).map_or("lb", |name| name);
            return table.set("sticky_cookie", name);
        }
        "ip_hash" | "client_ip_hash" => None,
        "uri_hash" => Some("{uri}".to_owned()),
        "header" => Some(key("header")),
        "query" => Some(key("query")),
        "first" => {
            let Some(Value::List(urls)) = table.get("proxy").cloned() else { return };
            let backup = urls.into_iter().enumerate().map(|(index, url)| match url {
                Value::Text(url) if index > 0 => Value::Text(format!("{url} backup")),
                url => url,
            });
            return table.set("proxy", backup.collect::<Vec<Value>>());
        }
        _ => return chain.lost(directive, "requests are distributed by turns"),
    };
    table.set("balance", "hash");
    table.set_some("hash_key", hashed);
}

fn header_up(chain: &Chain<'_>, directive: &Directive, table: &mut Table, outcome: &mut Outcome) {
    let (name, value) = (directive.arg(0), directive.arg(1));
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if is("Host") {
        let value = value.trim_start_matches("http.reverse_proxy.");
        match value {
            "{host}" | "{http.request.host}" | "{hostport}" => {}
            "{upstream_hostport}" | "{http.reverse_proxy.upstream.hostport}" => {
                table.set("host", "upstream");
            }
            value if !value.contains('{') && !value.is_empty() => table.set("host", value),
            _ => chain.lost(directive, "`host` is a fixed name"),
        }
        return;
    }
    // Upstreams get these fields by default.
    let is_default = is("X-Forwarded-For") && value.contains("remote")
        || is("X-Forwarded-Proto") && value.contains("scheme")
        || is("X-Forwarded-Host") && value.contains("host");
    let is_of_connection = ["Connection", "Upgrade"].iter().any(|other| is(other));
    if is_default || is_of_connection && template(value, outcome).is_ok() {
        return;
    }
    fields::change(chain, directive, &directive.args, &fields::REQUEST, outcome);
}

/// Translates an option of `transport http`.
fn transport(chain: &Chain<'_>, option: &Directive, table: &mut Table) {
    let first = option.arg(0);
    match &*option.name {
        "tls"
        | "compression"
        | "keepalive"
        | "keepalive_interval"
        | "read_buffer"
        | "write_buffer"
        | "max_response_header"
        | "tls_timeout"
        | "dial_fallback_delay" => {}
        "tls_server_name" if !first.contains('{') => table.set("tls_name", first),
        "tls_trusted_ca_certs" => table.set("ca", first),
        "tls_trust_pool" if first == "file" && option.args.len() == 2 => {
            table.set("ca", option.arg(1));
        }
        "tls_client_auth" if option.args.len() == 2 => {
            table.set("tls_cert", first);
            table.set("tls_key", option.arg(1));
        }
        "tls_insecure_skip_verify" => {
            chain.lost(option, "the certificate of the upstream is verified; `ca` names its CA");
        }
        "versions" => match first {
            "h2c" | "2" if option.args.len() == 1 => table.set("http_version", "2"),
            "1.1" if option.args.len() == 1 => {}
            _ => table.set("http_version", "auto"),
        },
        "dial_timeout" => set_time(chain, option, "connect_timeout", table),
        "response_header_timeout" => set_time(chain, option, "response_timeout", table),
        "read_timeout" | "write_timeout" => set_time(chain, option, "body_timeout", table),
        "keepalive_idle_conns_per_host" | "keepalive_idle_conns" => {
            set_idle(option, table);
        }
        "max_conns_per_host" => match first.parse::<u64>() {
            Ok(number @ 1..=65_535) => table.set("max_connections", number),
            _ => chain.lost(option, "the number is from 1 to 65535"),
        },
        "resolvers" => table.set("resolver", Value::one_or_list(option.args.clone())),
        _ => chain.lost(option, "there is no equivalent"),
    }
}

fn set_idle(option: &Directive, table: &mut Table) {
    if let Ok(number @ 0..=65_535) = option.arg(0).parse::<u64>() {
        table.set("max_idle_connections", number);
    }
}
