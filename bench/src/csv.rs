//! `results.csv`: every sample in machine-readable form.

use std::fmt::Write as _;
use std::path::Path;

use crate::Result;
use crate::measure::Table;
use crate::stats::{CALLS, P50, P99, P999, Sample};

const HEAD: &str = "workload,workers,server,round,requests,errors,seconds,requests_per_second,\
cpu_us_per_request,system_us_per_request,p50_us,p99_us,p999_us,memory_kib,bytes_per_idle_connection,system_calls_per_request\n";

pub fn write(folder: &Path, tables: &[Table]) -> Result<()> {
    let mut text = HEAD.to_owned();
    for table in tables {
        for row in &table.rows {
            for (round, sample) in row.rounds.iter().enumerate() {
                let Some(sample) = sample else { continue };
                let (name, workers, round) = (table.workload.name, row.workers, round + 1);
                let line = line(sample);
                writeln!(text, "{name},{workers},{},{round},{line}", row.peer)
                    .expect("writing to a string cannot fail");
            }
        }
    }
    let path = folder.join("results.csv");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn line(sample: &Sample) -> String {
    let cell = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.0}"));
    format!(
        "{},{},{:.3},{:.1},{:.4},{:.4},{},{},{},{},{},{}",
        sample.requests,
        sample.errors,
        sample.seconds,
        sample.per_second(),
        sample.cpu_micros(),
        sample.system_seconds * 1e6 / sample.requests as f64,
        cell(P50(sample)),
        cell(P99(sample)),
        cell(P999(sample)),
        sample.memory_kib,
        cell(sample.connection_bytes),
        CALLS(sample).map_or(String::new(), |calls| format!("{calls:.3}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_one_value_per_column() {
        let sample = Sample { requests: 4, seconds: 2.0, cpu_seconds: 0.001, ..Sample::default() };
        assert_eq!(line(&sample), "4,0,2.000,2.0,250.0000,0.0000,,,,0,,");
        assert_eq!(line(&sample).matches(',').count() + 4, HEAD.matches(',').count());
    }
}
