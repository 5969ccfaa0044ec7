//! Charts in SVG: one for each workload, with a panel for each metric that it has. Colours follow
//! the reader's scheme, and nothing is loaded from elsewhere.

use std::fmt::Write as _;
use std::path::Path;

use crate::Result;
use crate::measure::{Row, Table};
use crate::stats::{CALLS, CONNECTION, CPU, MEMORY, Metric, P50, P99, P999, THROUGHPUT, median_of};

const STYLE: &str = "
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .value { fill: #59636e; }
  .bar { fill: #8c959f; }
  .ours { fill: #0969da; }
  .spread { stroke: #1f2328; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .value { fill: #9198a1; }
    .bar { fill: #656c76; }
    .ours { fill: #4493f8; }
    .spread { stroke: #f0f6fc; }
  }
";

const PANELS: &[(&str, Metric)] = &[
    ("CPU time per request, µs", CPU),
    ("requests per second", THROUGHPUT),
    ("latency, median, µs", P50),
    ("latency, 99 %, µs", P99),
    ("latency, 99.9 %, µs", P999),
    ("memory, KiB", MEMORY),
    ("bytes per idle connection", CONNECTION),
    ("system calls per request", CALLS),
];

/// A bar: median, lowest and highest.
struct Bar {
    name: String,
    is_ours: bool,
    median: f64,
    low: f64,
    high: f64,
}

pub fn write(folder: &Path, tables: &[Table]) -> Result<()> {
    for table in tables {
        let path = folder.join(name(table));
        std::fs::write(&path, chart(table))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// The name of a table's chart.
pub fn name(table: &Table) -> String {
    format!("{}.svg", table.workload.name)
}

const WIDTH: usize = 400;
const LINE: usize = 20;

fn chart(table: &Table) -> String {
    let panels: Vec<(&str, Vec<Bar>)> = PANELS
        .iter()
        .map(|(title, metric)| (*title, bars(table, *metric)))
        .filter(|(_, bars)| !bars.is_empty())
        .collect();
    let lines = panels.iter().map(|(_, bars)| bars.len()).max().unwrap_or(0);
    let height = (lines + 2) * LINE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\">\n<style>{STYLE}</style>\n",
        2 * WIDTH,
        panels.len().div_ceil(2) * height,
    );
    for (number, (title, bars)) in panels.iter().enumerate() {
        let (x, y) = (number % 2 * WIDTH, number / 2 * height);
        writeln!(svg, "<g transform=\"translate({x} {y})\">").expect("a string grows");
        panel(&mut svg, title, bars);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn bars(table: &Table, metric: Metric) -> Vec<Bar> {
    let bar = |row: &Row| {
        let values = row.rounds.iter().flatten().filter_map(metric);
        let (low, high) = values
            .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let median = median_of(&row.rounds, metric)?;
        Some(Bar { name: row.title(), is_ours: row.peer.contains("weft"), median, low, high })
    };
    table.rows.iter().filter_map(bar).collect()
}

/// Bars from zero; a thin line from the lowest to the highest round.
fn panel(svg: &mut String, title: &str, bars: &[Bar]) {
    const LEFT: f64 = 96.0;
    const ROOM: f64 = 220.0;
    let most = bars.iter().map(|bar| bar.high).fold(f64::MIN_POSITIVE, f64::max);
    let place = |value: f64| value / most * ROOM;
    writeln!(svg, "<text class=\"title\" x=\"{LEFT}\" y=\"16\">{title}</text>")
        .expect("a string grows");
    for (line, Bar { name, is_ours, median, low, high }) in bars.iter().enumerate() {
        let y = (line + 1) * LINE;
        let class = if *is_ours { "ours" } else { "bar" };
        let (text, middle) = (y + 14, y + 10);
        writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{text}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{}\" width=\"{:.1}\" height=\"14\"/>\
             <path class=\"spread\" d=\"M{:.1} {middle}H{:.1}\"/>\
             <text class=\"value\" x=\"{:.1}\" y=\"{text}\">{}</text>",
            LEFT - 6.0,
            y + 3,
            place(*median),
            LEFT + place(*low),
            LEFT + place(*high),
            LEFT + place(median.max(*high)) + 6.0,
            number(*median),
        )
        .expect("a string grows");
    }
}

/// Three digits, or all before the point, in groups.
pub fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => {
            let digits = format!("{value:.0}");
            let mut grouped = String::new();
            for (place, digit) in digits.chars().enumerate() {
                if place > 0 && (digits.len() - place) % 3 == 0 {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers() {
        let cases = [
            (0.1234, "0.12"),
            (12.345, "12.3"),
            (999.6, "1,000"),
            (151.0, "151"),
            (1234567.0, "1,234,567"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}
