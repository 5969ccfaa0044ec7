//! SVG charts: one per workload, with a panel per metric. Colors follow the reader's color scheme,
//! and no external resources are loaded.

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

/// A bar: the median of all rounds, the lowest and the highest.
struct Bar {
    name: String,
    is_weft: bool,
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

/// Returns the file name of a table's chart.
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
        writeln!(svg, "<g transform=\"translate({x} {y})\">")
            .expect("writing to a string cannot fail");
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
        Some(Bar { name: row.title(), is_weft: row.peer.contains("weft"), median, low, high })
    };
    table.rows.iter().filter_map(bar).collect()
}

/// Draws bars that start at zero, with a thin line from the lowest to the highest round.
fn panel(svg: &mut String, title: &str, bars: &[Bar]) {
    const LEFT: f64 = 96.0;
    const MAX_BAR: f64 = 220.0;
    let max = bars.iter().map(|bar| bar.high).fold(f64::MIN_POSITIVE, f64::max);
    let scale = |value: f64| value / max * MAX_BAR;
    writeln!(svg, "<text class=\"title\" x=\"{LEFT}\" y=\"16\">{title}</text>")
        .expect("writing to a string cannot fail");
    for (line, Bar { name, is_weft, median, low, high }) in bars.iter().enumerate() {
        let y = (line + 1) * LINE;
        let class = if *is_weft { "ours" } else { "bar" };
        let (text, middle) = (y + 14, y + 10);
        writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{text}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{}\" width=\"{:.1}\" height=\"14\"/>\
             <path class=\"spread\" d=\"M{:.1} {middle}H{:.1}\"/>\
             <text class=\"value\" x=\"{:.1}\" y=\"{text}\">{}</text>",
            LEFT - 6.0,
            y + 3,
            scale(*median),
            LEFT + scale(*low),
            LEFT + scale(*high),
            LEFT + scale(median.max(*high)) + 6.0,
            number(*median),
        )
        .expect("writing to a string cannot fail");
    }
}

/// Formats a number with three significant digits, or as an integer with thousands separators.
pub fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => {
            let digits = format!("{value:.0}");
            let mut grouped = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index) % 3 == 0 {
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
    fn formats_numbers() {
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
