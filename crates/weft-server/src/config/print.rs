//! [`Plan`] → an equivalent configuration file that includes all defaults. Pure.

use std::fmt::Write;

use weft_config::{print_lines, quoted};

use super::{Config, Plan, sections};
use crate::sections::host::HOST;
use crate::sections::maps::MAP;
use crate::sections::streams::STREAM;

/// Formats the plan as a configuration file. Paths that are not valid UTF-8 are converted lossily.
pub(crate) fn print_plan(plan: &Plan) -> String {
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
    for map in &plan.maps.settings {
        line(&mut out, format_args!("\n[maps.{}]", map.name.value));
        out.push_str(&print_lines(&MAP, &map.settings));
    }
    for host in &plan.hosts {
        line(&mut out, format_args!("\n[hosts.{}]", quoted(&host.title())));
        out.push_str(&print_lines(&HOST, &host.settings));
        for route in &host.routes {
            line(&mut out, format_args!("{} = {}", quoted(&route.key.to_string()), route.print()));
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

/// Returns the values of the sections. The routes have the values of `[files]` and `[defaults]`.
fn config(plan: &Plan) -> Config {
    Config {
        top: plan.top.clone(),
        log: plan.log.clone(),
        tls: plan.tls.clone().unwrap_or_default(),
        acme: plan.acme.clone().unwrap_or_default(),
        status: plan.status.clone(),
        tracing: plan.tracing.clone().unwrap_or_default(),
        response_cache: plan.response_cache.clone(),
        limits: plan.limits.clone(),
        ..Config::default()
    }
}
