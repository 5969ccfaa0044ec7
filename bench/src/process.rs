//! The processes of a server, their CPU time and memory, from `/proc`.

use std::fs;

/// The CPU time used by a server in seconds, from two sources.
pub struct Cpu {
    /// CPU time of all existing threads, with nanosecond resolution.
    existing: f64,
    /// CPU time including ended threads, with a resolution of 10 ms.
    all: f64,
    /// The part of `all` that the kernel used.
    system: f64,
}

impl Cpu {
    pub fn of(processes: &[u32]) -> Cpu {
        let mut cpu = Cpu { existing: 0.0, all: 0.0, system: 0.0 };
        for process in processes {
            let stat = read(&format!("/proc/{process}/stat")).unwrap_or_default();
            let (user, system) = ticks(&stat);
            cpu.all += (user + system) as f64 / 100.0;
            cpu.system += system as f64 / 100.0;
            for thread in numbers(&format!("/proc/{process}/task")) {
                let stat = read(&format!("/proc/{process}/task/{thread}/schedstat"));
                cpu.existing += stat.map_or(0, |stat| first_number(&stat)) as f64 / 1e9;
            }
        }
        cpu
    }

    /// Returns the CPU time used since `before`. If both sources differ by more than the resolution
    /// of the second, threads have ended in between, and only the second includes them.
    pub fn seconds_since(&self, before: &Cpu) -> f64 {
        let (existing, all) = (self.existing - before.existing, self.all - before.all);
        if (existing - all).abs() > 0.05 { all } else { existing }
    }

    /// Returns the system time used since `before`.
    pub fn system_seconds_since(&self, before: &Cpu) -> f64 {
        self.system - before.system
    }
}

/// Returns a process and all its descendants.
pub fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = numbers("/proc")
        .filter_map(|process| Some((process, parent(&read(&format!("/proc/{process}/stat"))?)?)))
        .collect();
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&process) = tree.get(next) {
        tree.extend(
            parents.iter().filter(|(_, parent)| *parent == process).map(|(child, _)| child),
        );
        next += 1;
    }
    tree
}

/// Returns the proportional set size of these processes in KiB; shared memory counts once.
pub fn memory_kib(processes: &[u32]) -> u64 {
    let pss = |process: &u32| {
        let rollup = read(&format!("/proc/{process}/smaps_rollup"))?;
        Some(first_number(rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?))
    };
    processes.iter().filter_map(pss).sum()
}

/// Returns `utime` and `stime`. The name of the program precedes them in parentheses and may contain
/// spaces.
fn ticks(stat: &str) -> (u64, u64) {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut fields = fields.split_whitespace().skip(11).map(|field| field.parse().unwrap_or(0));
    (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
}

fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn numbers(folder: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Reads a file. Returns `None` if the process has ended meanwhile.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_stat_with_parentheses_in_the_name() {
        let stat = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 1 0 100 0 0";
        assert_eq!((parent(stat), ticks(stat)), (Some(7), (250, 50)));
    }

    #[test]
    fn measures_this_process() {
        let processes = tree(std::process::id());
        assert!(processes.contains(&std::process::id()));
        assert!(memory_kib(&processes) > 100);
        let before = Cpu::of(&processes);
        let mut sum = 0u64;
        (0..20_000_000).for_each(|number| sum = std::hint::black_box(sum + number));
        assert!(Cpu::of(&processes).seconds_since(&before) > 0.0);
    }

    #[test]
    fn includes_cpu_time_of_ended_threads() {
        let cpu = |existing, all| Cpu { existing, all, system: 0.0 };
        assert_eq!(cpu(1.234, 1.23).seconds_since(&cpu(0.0, 0.0)), 1.234);
        assert_eq!(cpu(0.5, 3.0).seconds_since(&cpu(1.0, 1.0)), 2.0);
    }
}
