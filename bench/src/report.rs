//! `REPORT.md`: what was measured, how, and what it came to.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use crate::Result;
use crate::args::Options;
use crate::build::Programs;
use crate::chart::{self, number};
use crate::machine::Machine;
use crate::measure::{Row, Table};
use crate::peer::named;
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

/// Writing to a string cannot fail.
macro_rules! say {
    ($text:expr, $($rest:tt)*) => { writeln!($text, $($rest)*).expect("a string grows") };
}

fn head(text: &mut String, options: &Options, machine: &Machine) {
    let Options { rounds, seconds, command, .. } = options;
    let Machine { processor, kernel, load_average, server_cpus, load_cpus, .. } = machine;
    say!(text, "# Weft beside others\n");
    say!(text, "Written by `cargo run --release --manifest-path bench/Cargo.toml -- {command}`.\n");
    say!(text, "- Processor: {processor}");
    say!(text, "- Kernel: {kernel}; load average at the beginning: {}", load_average.trim());
    say!(
        text,
        "- CPUs of the servers: {server_cpus:?}, of the load: {load_cpus:?}; both over loopback"
    );
    say!(
        text,
        "- {rounds} rounds of {seconds} s. In a round every server is started anew, asked once to see \
        that its answer is right, and loaded; each round begins with another server."
    );
    say!(
        text,
        "- Rust peers, Weft among them, are built with `lto = \"fat\"` and `codegen-units = 1`.\n"
    );
    say!(
        text,
        "A ratio is that of two medians; behind it stand the lowest and the highest ratio of a single \
        round. **CPU, Weft : it** is the CPU time of all of Weft's processes for one request beside that of \
        the other server: below 1 Weft needs less. **Throughput, Weft : it** is above 1 where Weft answers \
        more; where the load is what is slowest, it says little. Latencies are those of a load that asks as \
        fast as it is answered. Memory is the proportional set size of all processes, half a second after \
        the load began. Absolute figures are of this machine, and only good beside each other.\n"
    );
}

fn outcomes(text: &mut String, tables: &[Table]) {
    let outcomes = targets::outcomes(tables);
    if outcomes.is_empty() {
        return;
    }
    say!(text, "## Targets\n");
    let missed = outcomes.iter().filter(|outcome| !outcome.is_met()).count();
    if missed > 0 {
        say!(text, "{missed} of {} are missed; why, says `docs/performance.md`.\n", outcomes.len());
    }
    say!(
        text,
        "The floor is what a bare epoll loop has in place of Weft, which receives and sends.\n\n\
        | target | at most | found | lowest – highest | the floor | |\n\
        | --- | --- | --- | --- | --- | --- |"
    );
    for outcome in outcomes {
        let Ratio { median, low, high } = outcome.found;
        let floor = outcome.floor.map_or(String::new(), |floor| format!("{floor:.2}"));
        let digits = if median < 100.0 { 2 } else { 0 };
        let (what, target) = (&outcome.what, outcome.target);
        let verdict = if outcome.is_met() { "met" } else { "**missed**" };
        say!(
            text,
            "| {what} | {target:.digits$} | {median:.digits$} | {low:.digits$} – {high:.digits$} | {floor} | {verdict} |"
        );
    }
    text.push('\n');
}

/// What stands in the columns, if there is something to stand there.
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

/// And beside Weft's own row.
const RATIOS: &[(&str, Metric)] =
    &[("CPU", CPU), ("throughput", THROUGHPUT), ("p50", P50), ("system calls", CALLS)];

fn section(text: &mut String, options: &Options, table: &Table) {
    let Table { workload, rows } = table;
    say!(text, "## {}\n", workload.title);
    say!(text, "{}\n", workload.note);
    say!(text, "```sh\n{}\n```\n", workload.load.commands(&workload.ask, options.seconds));
    let has = |(_, metric): &&(&str, Metric)| {
        rows.iter().any(|row| median_of(&row.rounds, *metric).is_some())
    };
    let ratios: Vec<_> = RATIOS.iter().filter(has).collect();
    let columns: Vec<_> = COLUMNS.iter().filter(has).collect();
    let ours = workload.peers[0];
    let names = ratios.iter().map(|(name, _)| format!("{name}, {ours} : it"));
    let names: Vec<String> =
        names.chain(columns.iter().map(|(name, _)| (*name).to_owned())).collect();
    say!(text, "| server | {} |", names.join(" | "));
    say!(text, "| --- |{}", " --- |".repeat(names.len()));
    for row in rows {
        let beside = ratios.iter().map(|(_, metric)| beside(table, row, *metric));
        let figures = columns
            .iter()
            .map(|(_, metric)| median_of(&row.rounds, *metric).map_or("–".to_owned(), number));
        let cells: Vec<String> = beside.chain(figures).collect();
        say!(text, "| {} | {} |", row.title(), cells.join(" | "));
    }
    text.push('\n');
    rows.iter().for_each(|row| remarks(text, row));
    say!(text, "\n![{}]({})\n", workload.title, chart::name(table));
}

/// Weft's figure beside that of another server with as many workers.
fn beside(table: &Table, row: &Row, metric: Metric) -> String {
    let ratio = table.ours(row.workers).and_then(|ours| ratio(&ours.rounds, &row.rounds, metric));
    match ratio {
        _ if row.peer == table.workload.peers[0] => "1".to_owned(),
        Some(Ratio { median, low, high }) => format!("**{median:.2}** ({low:.2} – {high:.2})"),
        None => "–".to_owned(),
    }
}

/// What the figures do not say.
fn remarks(text: &mut String, row: &Row) {
    let title = row.title();
    if let Some(trouble) = &row.trouble {
        say!(text, "- {title} was not measured to the end: {trouble}.");
    }
    let samples = || row.rounds.iter().flatten();
    let (errors, requests) = samples().fold((0, 0), |(errors, requests), sample| {
        (errors + sample.errors, requests + sample.requests)
    });
    if errors > 0 {
        say!(text, "- {title} had {errors} errors beside {requests} answers.");
    }
    if let Some((calls, requests)) =
        samples().find_map(|sample| Some((sample.calls.as_ref()?, sample.requests)))
    {
        let calls = calls.iter().map(|(name, count)| (name, *count as f64 / requests as f64));
        let calls: Vec<String> = calls
            .filter(|(_, count)| *count >= 0.005)
            .map(|(name, count)| format!("{name} {count:.2}"))
            .collect();
        say!(text, "- {title}: {}", calls.join(", "));
    }
}

/// Who was measured, how each was started, and what each answers.
fn servers(text: &mut String, programs: &Programs, tables: &[Table]) {
    say!(text, "## Servers\n");
    say!(
        text,
        "`@bin@` is the folder of the peers that this workspace builds, `@config@` the file named, \
        filled in.\n"
    );
    say!(text, "| server | version | how it is set up | started as | fields of its answer |");
    say!(text, "| --- | --- | --- | --- | --- |");
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
        say!(
            text,
            "| {} | {version} | {}{config} | `{}` | {} |",
            peer.name,
            peer.note,
            row.command,
            row.fields.join(", ")
        );
    }
    for (name, why) in &programs.missing {
        say!(text, "\n{name} was not measured: {why}.");
    }
}
