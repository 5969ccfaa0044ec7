//! [`Plan`] → an equivalent configuration file that includes all defaults. Pure.

use std::fmt::Write;

use crate::config::{
    CGI, ConfigLocation, FILES, Key, LIMITS, LOG, Located, LogConfig, PROXY, STATUS, StatusConfig,
    TLS, TOP, TlsConfig, TopConfig, quoted, quoted_list,
};
use crate::plan::{AppPlan, Plan, TlsPlan};

/// Formats the plan as a configuration file. Paths that are not valid UTF-8 are converted lossily.
pub(crate) fn print(plan: &Plan) -> String {
    let mut out = String::new();
    let top = TopConfig {
        listen: all_at(&plan.listen.list),
        workers: plan.workers,
        drain_timeout: plan.drain_timeout,
        retire_timeout: plan.retire_timeout,
        user: plan.run_as.user.clone(),
        group: plan.run_as.group.clone(),
        umask: plan.umask.map(|mask| at(format!("{mask:03o}"))),
        pid_file: plan.pid_file.clone().map(at),
    };
    keys(&mut out, &TOP, &top);
    out.push_str("\n[log]\n");
    out.push_str(&log(&plan.log));
    if let Some(tls) = &plan.tls {
        out.push_str("\n[tls]\n");
        keys(&mut out, &TLS, &tls_config(tls));
    }
    if !plan.status.list.is_empty() {
        out.push_str("\n[status]\n");
        keys(&mut out, &STATUS, &StatusConfig { listen: all_at(&plan.status.list) });
    }
    out.push_str("\n[limits]\n");
    keys(&mut out, &LIMITS, &plan.limits);
    for host in &plan.hosts {
        line(&mut out, format_args!("\n[hosts.{}]", quoted(&host.names.join(" "))));
        for route in &host.routes {
            let prefix = quoted(&format!("{}/", route.prefix));
            line(&mut out, format_args!("{prefix} = {}", app(&route.app.value)));
        }
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

fn keys<T>(out: &mut String, keys: &[Key<T>], values: &T) {
    for key in keys {
        let shown = (key.show)(values);
        if !shown.is_empty() {
            line(out, format_args!("{} = {shown}", key.name));
        }
    }
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
        certificates: plan.certificates.clone(),
        self_signed: plan.certificates.is_empty(),
        tickets: plan.tickets.clone().map(at),
        client_ca: plan.client_ca.clone().map(at),
        only_1_3: plan.only_1_3,
    }
}

/// Formats the keys of `[log]`.
fn log(config: &LogConfig) -> String {
    let mut out = String::new();
    keys(&mut out, &LOG, config);
    out
}

/// Formats a route as a table.
fn app(plan: &AppPlan) -> String {
    match plan {
        AppPlan::Cgi(settings) => {
            let root = quoted(&settings.root.to_string_lossy());
            format!("{{ cgi = {root}{} }}", other_keys(&CGI, &**settings))
        }
        AppPlan::Files { root, files } => {
            let root = quoted(&root.to_string_lossy());
            format!("{{ files = {root}{} }}", other_keys(&FILES, &**files))
        }
        AppPlan::Proxy(settings) => {
            let urls = quoted_list(settings.upstreams.iter().map(ToString::to_string));
            format!("{{ proxy = {urls}{} }}", other_keys(&PROXY, &**settings))
        }
        AppPlan::Redirect { to, status } => {
            format!("{{ redirect = {}, status = {} }}", quoted(to), status.as_u16())
        }
        AppPlan::Respond { text, status } => {
            format!("{{ respond = {}, status = {} }}", quoted(text), status.as_u16())
        }
    }
}

/// Formats the other keys of a route table, each after a comma.
fn other_keys<T>(keys: &[Key<T>], values: &T) -> String {
    let shown = keys.iter().map(|key| (key.name, (key.show)(values)));
    let set = shown.filter(|(_, shown)| !shown.is_empty() && shown != "[]");
    set.map(|(name, shown)| format!(", {name} = {shown}")).collect()
}
