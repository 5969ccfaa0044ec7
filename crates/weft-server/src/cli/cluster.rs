//! `weft cluster status`: the machines of a cluster, as they describe themselves in the store.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use weft::date::rfc3339;

use crate::sections::cluster::{ClusterConfig, MachineEntry, OpenedCluster};

/// Returns a line for each machine: host and PID, version, seconds since its last entry, beginning
/// of the SHA-256 of its configuration, certificates, and addresses.
///
/// # Errors
/// If there is no store, or if it cannot be used.
pub(crate) fn status(config: &ClusterConfig) -> Result<String, String> {
    let cluster = OpenedCluster::open(config, None).map_err(|problem| problem.to_string())?;
    Ok(table(&cluster.machines()?, SystemTime::now()))
}

/// Maximum length of a text of a machine, in characters.
const MAX_CELL: usize = 64;

fn table(machines: &[MachineEntry], now: SystemTime) -> String {
    let mut rows = vec![
        ["MACHINE", "VERSION", "SEEN", "CONFIGURATION", "CERTIFICATES", "FIRST EXPIRES", "LISTEN"]
            .map(str::to_owned),
    ];
    let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    rows.extend(machines.iter().map(|it| {
        let expires = it.expires.map_or_else(
            || "-".to_owned(),
            |time| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(time)),
        );
        [
            cell(&format!("{}/{}", it.host, it.pid)),
            cell(&it.version),
            format!("{} s ago", now.saturating_sub(it.seen)),
            cell(&it.configuration),
            format!("{} of {} valid", it.valid, it.certificates),
            expires,
            cell(&it.listen.join(" ")),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..7).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end()).expect("writing to a String cannot fail");
    }
    let first = machines.first().map(|it| &it.configuration);
    if machines.iter().any(|it| Some(&it.configuration) != first) {
        out.push_str("the machines have different configurations\n");
    }
    out
}

/// Shortens a text, and removes its control characters.
fn cell(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(MAX_CELL).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_listed_with_differences() {
        let machine = |host: &str, configuration: &str| MachineEntry {
            host: host.to_owned(),
            pid: 7,
            version: "1.0".to_owned(),
            seen: 95,
            listen: vec![":80".to_owned()],
            configuration: configuration.to_owned(),
            certificates: 3,
            valid: 2,
            expires: Some(86_400),
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let hostile = format!("\u{1b}[2J{}", "x".repeat(1_000));
        let machines = [machine("a", "0011"), machine(&hostile, "0011")];
        let text = table(&machines, now);
        assert!(text.lines().nth(1).unwrap().starts_with("a/7 "), "{text}");
        for expected in [" 5 s ago ", " 2 of 3 valid ", " 1970-01-02T00:00:00Z ", " :80\n"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains('\u{1b}') && text.lines().all(|line| line.len() < 200), "{text}");
        assert!(!text.contains("different"), "{text}");
        let text = table(&[machine("a", "0011"), machine("b", "0012")], now);
        assert!(text.ends_with("the machines have different configurations\n"), "{text}");
    }
}
