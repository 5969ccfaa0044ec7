//! `REPORT.md`: the setup, the results and the targets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use crate::Result;
use crate::args::Options;
use crate::build::Programs;
use crate::chart::{self, number};
use crate::machine::Machine;
use crate::measure::{Row, Table};
use crate::peers::named;
use crate::stats::{
    CALLS, CONNECTION, CPU, MEMORY, Metric, P50, P99, P999, Ratio, THROUGHPUT, median_of, ratio,
};
use crate::targets;

pub fn write(
    options: &Options,
    machine: &Machine,
    programs: &Programs,
    tables: &[Table],
) -> Result<()> {
    let mut text = String::new();
    head(&mut text, options, machine);
    outcomes(&mut text, tables);
    let measured = tables.iter().filter(|table| !table.rows.is_empty());
    measured.for_each(|table| section(&mut text, options, table));
    servers(&mut text, programs, tables);
    let path = options.out.join("REPORT.md");
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Appends a line. Writing to a string cannot fail.
macro_rules! write_line {
    ($text:expr, $($rest:tt)*) => { writeln!($text, $($rest)*).expect("writing to a string cannot fail") };
}

fn head(text: &mut String, options: &Options, machine: &Machine) {
    let Options { rounds, seconds, command, .. } = options;
    let Machine { processor, kernel, load_average, server_cpus, load_cpus, .. } = machine;
    write_line!(text, "# Weft in comparison\n");
    write_line!(
        text,
        "Written by `cargo run --release --manifest-path bench/Cargo.toml -- {command}`.\n"
    );
    write_line!(text, "- Processor: {processor}");
    write_line!(text, "- Kernel: {kernel}; load average at the start: {}", load_average.trim());
    write_line!(
        text,
        "- CPUs of the servers: {server_cpus:?}, of the load: {load_cpus:?}; both over loopback"
    );
    write_line!(
        text,
        "- {rounds} rounds of {seconds} s. In each round every server is restarted, checked with one request, \
        and measured; each round starts with a different server."
    );
    write_line!(
        text,
        "- All Rust servers, including Weft, are built with `lto = \"fat\"` and `codegen-units = 1`.\n"
    );
    write_line!(
        text,
        "Ratios are ratios of two medians, followed by the lowest and the highest ratio of a single \
        round. **CPU, Weft : it** is the CPU time per request of all of Weft's processes divided by that of \
        the other server: below 1, Weft needs less. **Throughput, Weft : it** is above 1 if Weft serves more \
        requests; it means little if the load generator is the bottleneck. Latencies are measured with a \
        closed loop: each connection sends its next request after the response. Memory is the proportional \
        set size of all processes, half a second after the start of the load. Absolute figures depend on \
        this machine, and are comparable only with each other.\n"
    );
}

fn outcomes(text: &mut String, tables: &[Table]) {
    let outcomes = targets::outcomes(tables);
    if outcomes.is_empty() {
        return;
    }
    write_line!(text, "## Targets\n");
    let missed = outcomes.iter().filter(|outcome| !outcome.is_met()).count();
    if missed > 0 {
        write_line!(
            text,
            "{missed} of {} targets are missed; `docs/performance.md` explains the reasons.\n",
            outcomes.len()
        );
    }
    write_line!(
        text,
        "The lower bound is the ratio of a bare epoll loop, which only receives and sends.\n\n\
        | target | at most | measured | lowest – highest | lower bound | |\n\
        | --- | --- | --- | --- | --- | --- |"
    );
    for outcome in outcomes {
        let Ratio { median, low, high } = outcome.measured;
        let lower_bound = outcome.lower_bound.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let digits = if median < 100.0 { 2 } else { 0 };
        let (name, target) = (&outcome.name, outcome.target);
        let verdict = if outcome.is_met() { "met" } else { "**missed**" };
        write_line!(
            text,
            "| {name} | {target:.digits$} | {median:.digits$} | {low:.digits$} – {high:.digits$} | {lower_bound} | {verdict} |"
        );
    }
    text.push('\n');
}

/// The columns of the tables. Columns without values are omitted.
const COLUMNS: &[(&str, Metric)] = &[
    ("CPU per request, µs", CPU),
    ("requests/s", THROUGHPUT),
    ("p50, µs", P50),
    ("p99, µs", P99),
    ("p99.9, µs", P999),
    ("memory, KiB", MEMORY),
    ("bytes per idle connection", CONNECTION),
    ("system calls per request", CALLS),
];

/// The columns with ratios of Weft to each server.
const RATIOS: &[(&str, Metric)] =
    &[("CPU", CPU), ("throughput", THROUGHPUT), ("p50", P50), ("system calls", CALLS)];

fn section(text: &mut String, options: &Options, table: &Table) {
    let Table { workload, rows } = table;
    write_line!(text, "## {}\n", workload.title);
    write_line!(text, "{}\n", workload.note);
    write_line!(
        text,
        "```sh\n{}\n```\n",
        workload.load.commands(&workload.request, options.seconds)
    );
    let has = |(_, metric): &&(&str, Metric)| {
        rows.iter().any(|row| median_of(&row.rounds, *metric).is_some())
    };
    let ratios: Vec<_> = RATIOS.iter().filter(has).collect();
    let columns: Vec<_> = COLUMNS.iter().filter(has).collect();
    let weft = workload.peers[0];
    let names = ratios.iter().map(|(name, _)| format!("{name}, {weft} : it"));
    let names: Vec<String> =
        names.chain(columns.iter().map(|(name, _)| (*name).to_owned())).collect();
    write_line!(text, "| server | {} |", names.join(" | "));
    write_line!(text, "| --- |{}", " --- |".repeat(names.len()));
    for row in rows {
        let compared = ratios.iter().map(|(_, metric)| ratio_cell(table, row, *metric));
        let figures = columns
            .iter()
            .map(|(_, metric)| median_of(&row.rounds, *metric).map_or("–".to_owned(), number));
        let cells: Vec<String> = compared.chain(figures).collect();
        write_line!(text, "| {} | {} |", row.title(), cells.join(" | "));
    }
    text.push('\n');
    rows.iter().for_each(|row| notes(text, row));
    write_line!(text, "\n![{}]({})\n", workload.title, chart::name(table));
}

/// Formats the ratio of Weft to a server with the same number of workers.
fn ratio_cell(table: &Table, row: &Row, metric: Metric) -> String {
    let ratio =
        table.reference(row.workers).and_then(|weft| ratio(&weft.rounds, &row.rounds, metric));
    match ratio {
        _ if row.peer == table.workload.peers[0] => "1".to_owned(),
        Some(Ratio { median, low, high }) => format!("**{median:.2}** ({low:.2} – {high:.2})"),
        None => "–".to_owned(),
    }
}

/// Appends notes on failures, compression, errors and system calls.
fn notes(text: &mut String, row: &Row) {
    let title = row.title();
    if let Some(failure) = &row.failure {
        write_line!(text, "- {title} was not measured completely: {failure}.");
    }
    if let Some(bytes) = row.compressed_bytes {
        write_line!(text, "- {title} sends {bytes} bytes.");
    }
    let samples = || row.rounds.iter().flatten();
    let (errors, requests) = samples().fold((0, 0), |(errors, requests), sample| {
        (errors + sample.errors, requests + sample.requests)
    });
    if errors > 0 {
        write_line!(text, "- {title} had {errors} errors and {requests} responses.");
    }
    if let Some((calls, requests)) =
        samples().find_map(|sample| Some((sample.calls.as_ref()?, sample.requests)))
    {
        let calls = calls.iter().map(|(name, count)| (name, *count as f64 / requests as f64));
        let calls: Vec<String> = calls
            .filter(|(_, count)| *count >= 0.005)
            .map(|(name, count)| format!("{name} {count:.2}"))
            .collect();
        write_line!(text, "- {title}: {}", calls.join(", "));
    }
}

/// Appends the list of servers with their versions, commands and response fields.
fn servers(text: &mut String, programs: &Programs, tables: &[Table]) {
    write_line!(text, "## Servers\n");
    write_line!(
        text,
        "`@bin@` is the folder with the peers of this workspace, `@config@` the named file with its \
        placeholders replaced.\n"
    );
    write_line!(text, "| server | version | setup | command | response fields |");
    write_line!(text, "| --- | --- | --- | --- | --- |");
    let mut seen = BTreeSet::new();
    let rows = tables.iter().flat_map(|table| &table.rows);
    for row in rows.filter(|row| !row.command.is_empty()) {
        if !seen.insert(row.peer) {
            continue;
        }
        let peer = named(row.peer);
        let version = &programs.versions[peer.name];
        let config =
            peer.config.map_or(String::new(), |name| format!("; [{name}](../configs/{name})"));
        write_line!(
            text,
            "| {} | {version} | {}{config} | `{}` | {} |",
            peer.name,
            peer.note,
            row.command,
            row.fields.join(", ")
        );
    }
    for (name, reason) in &programs.missing {
        write_line!(text, "\n{name} was not measured: {reason}.");
    }
}
