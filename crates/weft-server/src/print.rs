//! [`Plan`] → a file that says the same, with all that was left to the defaults. Pure.

use std::fmt::Write;

use crate::config::{
    At, CGI, FILES, Key, LIMITS, LOG, LogConfig, PROXY, Place, STATUS, StatusConfig, TLS, TOP,
    TlsConfig, Top, quoted, texts,
};
use crate::plan::{AppPlan, Plan, TlsPlan};

/// The plan as a file. What cannot be said in UTF-8 is shown as it can be.
pub(crate) fn print(plan: &Plan) -> String {
    let mut out = String::new();
    let top = Top {
        listen: all_at(&plan.listen.list),
        workers: plan.workers,
        drain_timeout: plan.drain_timeout,
        retire_timeout: plan.retire_timeout,
        user: plan.identity.user.clone(),
        group: plan.identity.group.clone(),
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
    writeln!(out, "{text}").expect("a string takes everything");
}

fn keys<T>(out: &mut String, keys: &[Key<T>], values: &T) {
    for key in keys {
        let shown = (key.show)(values);
        if !shown.is_empty() {
            line(out, format_args!("{} = {shown}", key.name));
        }
    }
}

fn all_at(addresses: &[String]) -> Vec<At<String>> {
    addresses.iter().map(|address| at(address.clone())).collect()
}

fn at<T>(value: T) -> At<T> {
    At { place: Place::Unknown, value }
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

/// The keys of `[log]`.
pub(crate) fn log(config: &LogConfig) -> String {
    let mut out = String::new();
    keys(&mut out, &LOG, config);
    out
}

/// A route in its long form.
pub(crate) fn app(plan: &AppPlan) -> String {
    match plan {
        AppPlan::Cgi(settings) => {
            let root = quoted(&settings.root.to_string_lossy());
            format!("{{ cgi = {root}{} }}", others(&CGI, &**settings))
        }
        AppPlan::Files { root, files } => {
            let root = quoted(&root.to_string_lossy());
            format!("{{ files = {root}{} }}", others(&FILES, &**files))
        }
        AppPlan::Proxy(settings) => {
            let urls = texts(settings.upstreams.iter().map(ToString::to_string));
            format!("{{ proxy = {urls}{} }}", others(&PROXY, &**settings))
        }
        AppPlan::Redirect { to, status } => {
            format!("{{ redirect = {}, status = {} }}", quoted(to), status.as_u16())
        }
        AppPlan::Respond { text, status } => {
            format!("{{ respond = {}, status = {} }}", quoted(text), status.as_u16())
        }
    }
}

/// The other keys of a table, each behind a comma.
fn others<T>(keys: &[Key<T>], values: &T) -> String {
    let shown = keys.iter().map(|key| (key.name, (key.show)(values)));
    let said = shown.filter(|(_, shown)| !shown.is_empty() && shown != "[]");
    said.map(|(name, shown)| format!(", {name} = {shown}")).collect()
}
