//! [`Plan`] → an equivalent configuration file that includes all defaults. Pure.

use std::fmt::Write;
use std::path::Path;

use weft::{HeaderValue, StatusCode};
use weft_config::{
    ConfigLocation, Located, SectionKey, print_entries, print_lines, quoted, quoted_list,
};

use crate::acme::{AcmePlan, DnsMethod, DnsPlan, OnDemandPlan};
use crate::apps::cgi::CgiSettings;
use crate::apps::proxy::{Protocol, ProxySettings};
use crate::config::{
    ACME, AcmeConfig, CGI, Certificates, DnsConfig, FILES, FilesConfig, LIMITS, LOG, OPTIONS,
    OnDemandConfig, PROXY, RESPONSE, REWRITE, ResponseConfig, RewriteConfig, RouteOptions, SPLIT,
    STATUS, STREAM, SplitConfig, StatusConfig, TLS, TOP, TRACING, TlsConfig, TopConfig,
};
use crate::config::{fastcgi_keys, php_keys, scgi_keys};
use crate::plan::{AppPlan, DEFAULT_SPLIT_KEY, Plan, RoutePlan, TlsPlan};
use crate::route::Rewrite;

/// Formats the plan as a configuration file. Paths that are not valid UTF-8 are converted lossily.
pub(crate) fn print(plan: &Plan) -> String {
    let mut out = String::new();
    let top = TopConfig {
        listen: all_at(&plan.listen.list),
        workers: plan.workers,
        defer_accept: plan.defer_accept,
        drain_timeout: plan.drain_timeout,
        handover_timeout: plan.handover_timeout,
        max_buffer_bytes: plan.buffer_space.memory_bytes,
        max_buffer_bytes_per_client: plan.buffer_space.memory_bytes_per_client,
        max_temp_bytes: plan.buffer_space.disk_bytes,
        max_unread_bytes_per_client: plan.buffer_space.unread_bytes_per_client,
        trusted_proxies: plan.trusted_proxies.clone(),
        client_ip_header: plan.client_ip_header.clone(),
        user: plan.run_as.user.clone(),
        group: plan.run_as.group.clone(),
        umask: plan.umask.map(|mask| at(format!("{mask:03o}"))),
        pid_file: plan.pid_file.clone().map(at),
    };
    out.push_str(&print_lines(&TOP, &top));
    out.push_str("\n[log]\n");
    out.push_str(&print_lines(&LOG, &plan.log));
    if let Some(tls) = &plan.tls {
        out.push_str("\n[tls]\n");
        out.push_str(&print_lines(&TLS, &tls_config(tls)));
        if let Some(acme) = &tls.acme {
            out.push_str("\n[acme]\n");
            out.push_str(&print_lines(&ACME, &acme_config(acme)));
        }
    }
    if !plan.status.list.is_empty() || !plan.status_hosts.is_empty() {
        let hosts = all_at(&plan.status_hosts);
        out.push_str("\n[status]\n");
        let listen = all_at(&plan.status.list);
        let (config_changes, upstream_changes) = (plan.config_changes, plan.upstream_changes);
        let config = StatusConfig { listen, hosts, config_changes, upstream_changes };
        out.push_str(&print_lines(&STATUS, &config));
    }
    if let Some(tracing) = &plan.tracing {
        out.push_str("\n[tracing]\n");
        out.push_str(&print_lines(&TRACING, tracing));
    }
    out.push_str("\n[limits]\n");
    out.push_str(&print_lines(&LIMITS, &plan.limits));
    for host in &plan.hosts {
        line(&mut out, format_args!("\n[hosts.{}]", quoted(&host.names.join(" "))));
        for route in &host.routes {
            line(&mut out, format_args!("{} = {}", quoted(&route.key.to_string()), app(route)));
        }
    }
    for stream in &plan.streams {
        line(&mut out, format_args!("\n[streams.{}]", quoted(&stream.listen.join(" "))));
        out.push_str(&print_lines(&STREAM, &stream.settings.value));
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

fn all_at(addresses: &[String]) -> Vec<Located<String>> {
    addresses.iter().map(|address| at(address.clone())).collect()
}

fn at<T>(value: T) -> Located<T> {
    Located { location: ConfigLocation::Unknown, value }
}

fn tls_config(plan: &TlsPlan) -> TlsConfig {
    TlsConfig {
        listen: all_at(&plan.listen.list),
        certificates: match plan.acme.as_ref().is_some_and(|acme| acme.includes_hosts) {
            true => Certificates::Automatic,
            false => Certificates::Pairs(plan.certificates.clone()),
        },
        self_signed: plan.certificates.is_empty() && plan.acme.is_none(),
        tickets: plan.tickets.clone().map(at),
        client_ca: plan.client_ca.clone().map(at),
        client_auth: plan.client_auth,
        profile: plan.profile,
    }
}

fn acme_config(plan: &AcmePlan) -> AcmeConfig {
    let on_demand = plan.on_demand.clone();
    let on_demand = on_demand.map(|plan| {
        let OnDemandPlan { patterns, ask, ask_ca, rate, max_names, timeout } = plan;
        OnDemandConfig { patterns, ask, ask_ca: ask_ca.map(at), rate, max_names, timeout }
    });
    AcmeConfig {
        domains: plan.names.iter().map(|name| at(name.to_string())).collect(),
        directories: plan.directories.iter().map(|url| at(url.clone())).collect(),
        staging: plan.staging.clone().map(at),
        eab_key_id: plan.external_account.as_ref().map(|account| at(account.id.clone())),
        eab_key: plan.external_account.as_ref().map(|account| at(account.key.clone())),
        email: plan.email.clone().map(at),
        ca: plan.ca.clone().map(at),
        state: plan.state.clone().map(at),
        allows_ephemeral_state: plan.allows_ephemeral_state,
        has_placeholder: plan.has_placeholder,
        challenges: plan.challenges.iter().copied().map(at).collect(),
        dns: plan.dns.as_ref().map_or_else(DnsConfig::default, dns_config),
        profile: plan.profile.clone().map(at),
        on_demand: on_demand.unwrap_or_default(),
        retry_delay: plan.retry_delay,
        order_timeout: plan.order_timeout,
    }
}

fn dns_config(plan: &DnsPlan) -> DnsConfig {
    let mut config = DnsConfig { delay: plan.delay, ..DnsConfig::default() };
    match &plan.method {
        DnsMethod::Program(path) => config.program = Some(at(path.clone())),
        DnsMethod::Update { server, key } => {
            config.server = Some(at(server.clone()));
            config.key = Some(at(key.clone()));
        }
        DnsMethod::AcmeDns { url, accounts } => {
            config.acme_dns = Some(at(url.clone()));
            config.acme_dns_accounts = Some(at(accounts.clone()));
        }
    }
    config
}

/// Formats a route as a table.
fn app(route: &RoutePlan) -> String {
    let text = |path: &Path| quoted(&path.to_string_lossy());
    let action = match &route.app.value {
        AppPlan::Cgi(settings) => {
            let others = other_keys(&CGI, &**settings, &CgiSettings::default());
            format!("cgi = {}{others}", text(&settings.root))
        }
        AppPlan::Files { root, files } => {
            let others = other_keys(&FILES, &**files, &FilesConfig::defaults());
            format!("files = {}{others}", text(root))
        }
        AppPlan::ScriptSite { root, files, upstreams } => {
            let urls = quoted_list(upstreams.upstreams.iter().map(ToString::to_string));
            let of_files = other_keys(&FILES, &**files, &FilesConfig::defaults());
            let others = other_keys(php_keys(), &**upstreams, &ProxySettings::fastcgi());
            format!("files = {}, php = {urls}{of_files}{others}", text(root))
        }
        AppPlan::Proxy(settings) => {
            let urls = quoted_list(settings.upstreams.iter().map(ToString::to_string));
            match settings.protocol {
                Protocol::Http1 => {
                    let others = other_keys(&PROXY, &**settings, &ProxySettings::default());
                    format!("proxy = {urls}{others}")
                }
                Protocol::FastCgi => {
                    let others = other_keys(fastcgi_keys(), &**settings, &ProxySettings::fastcgi());
                    format!("fastcgi = {urls}{others}")
                }
                Protocol::Scgi => {
                    let others = other_keys(scgi_keys(), &**settings, &ProxySettings::scgi());
                    format!("scgi = {urls}{others}")
                }
                Protocol::Uwsgi => {
                    let others = other_keys(scgi_keys(), &**settings, &ProxySettings::uwsgi());
                    format!("uwsgi = {urls}{others}")
                }
            }
        }
        AppPlan::Rewrite => String::new(),
        AppPlan::Redirect { to, status } => {
            format!("redirect = {}, status = {}", quoted(to.source()), status.as_u16())
        }
        AppPlan::Respond { text, status, content_type } => {
            format!("respond = {}{}", quoted(text.source()), response(*status, content_type))
        }
        AppPlan::RespondFile { path, status, content_type } => {
            format!("respond_file = {}{}", text(path), response(*status, content_type))
        }
    };
    let rewrite = other_keys(&REWRITE, &rewrite_config(route), &RewriteConfig::default());
    let split = other_keys(&SPLIT, &split_config(route), &SplitConfig::default());
    let options = other_keys(&OPTIONS, &route.options, &RouteOptions::default());
    let keys = format!("{action}{rewrite}{split}{options}");
    format!("{{ {} }}", keys.trim_start_matches(", "))
}

fn response(status: StatusCode, content_type: &Option<HeaderValue>) -> String {
    let status = Some(status.as_u16());
    let config = ResponseConfig { status, content_type: content_type.clone() };
    other_keys(&RESPONSE, &config, &ResponseConfig::default())
}

fn rewrite_config(route: &RoutePlan) -> RewriteConfig {
    let mut config = RewriteConfig::default();
    match &route.rewrite {
        Some(Rewrite::To(path) | Rewrite::PassOn(path)) => {
            config.rewrite = Some(at(path.source().to_owned()))
        }
        Some(Rewrite::TryFiles(files)) => config.try_files = files.sources().map(at).collect(),
        None => {}
    }
    config
}

fn split_config(route: &RoutePlan) -> SplitConfig {
    let Some(split) = &route.split else { return SplitConfig::default() };
    let key = split.key().source();
    SplitConfig {
        shares: split.shares().map(|(name, share)| (at(format!("@{name}")), share)).collect(),
        key: (key != DEFAULT_SPLIT_KEY).then(|| at(key.to_owned())),
    }
}

/// Formats the other keys of a route table, each after a comma.
fn other_keys<S, K: SectionKey<S>>(
    keys: impl IntoIterator<Item = K>,
    values: &S,
    defaults: &S,
) -> String {
    let entries = print_entries(keys, values, defaults);
    entries.iter().map(|entry| format!(", {entry}")).collect()
}
