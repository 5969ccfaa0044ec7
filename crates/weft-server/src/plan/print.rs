//! [`Plan`] → an equivalent configuration file that includes all defaults. Pure.

use std::fmt::Write;
use std::path::Path;

use weft::{HeaderValue, StatusCode};
use weft_config::{Located, SectionKey, print_entries, print_lines, quoted, quoted_list};
use weft_upstream::{Protocol, ProxySettings};

use crate::apps::cgi::CgiSettings;
use crate::config::{
    CGI, Config, FILES, FilesConfig, PROXY, RESPONSE, REWRITE, ResponseConfig, RewriteConfig,
    SPLIT, SplitConfig, sections,
};
use crate::config::{fastcgi_keys, php_keys, scgi_keys};
use crate::options::{RouteOptions, option_keys};
use crate::plan::{AppPlan, DEFAULT_SPLIT_KEY, Plan, RoutePlan};
use crate::route::Rewrite;
use crate::sections::streams::STREAM;

/// Formats the plan as a configuration file. Paths that are not valid UTF-8 are converted lossily.
pub(crate) fn print(plan: &Plan) -> String {
    let mut out = String::new();
    let (config, defaults) = (config(plan), Config::default());
    for section in sections() {
        let lines = print_lines(&section.keys, &config);
        if section.is_always_printed || lines != print_lines(&section.keys, &defaults) {
            if !section.name.is_empty() {
                line(&mut out, format_args!("\n[{}]", section.name));
            }
            out.push_str(&lines);
        }
    }
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

fn at<T>(value: T) -> Located<T> {
    Located::without_location(value)
}

/// Returns the values of the sections. The routes have the values of `[files]` and `[defaults]`.
fn config(plan: &Plan) -> Config {
    Config {
        top: plan.top.clone(),
        log: plan.log.clone(),
        tls: plan.tls.clone().unwrap_or_default(),
        acme: plan.acme.clone().unwrap_or_default(),
        status: plan.status.clone(),
        tracing: plan.tracing.clone().unwrap_or_default(),
        limits: plan.limits.clone(),
        ..Config::default()
    }
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
    let options = other_keys(option_keys(), &route.options, &RouteOptions::default());
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
