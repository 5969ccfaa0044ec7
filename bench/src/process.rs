//! What `/proc` says of a server: its processes, their CPU time and memory.

use std::fs;

/// The CPU time that a server has used, in two ways, both in seconds.
pub struct Cpu {
    /// Of the threads that there are, to the nanosecond.
    living: f64,
    /// Of all threads that there were, to the hundredth of a second.
    all: f64,
}

impl Cpu {
    pub fn of(processes: &[u32]) -> Cpu {
        let mut cpu = Cpu { living: 0.0, all: 0.0 };
        for process in processes {
            let ticks = read(&format!("/proc/{process}/stat")).map_or(0, |stat| ticks(&stat));
            cpu.all += ticks as f64 / 100.0;
            for thread in numbers(&format!("/proc/{process}/task")) {
                let stat = read(&format!("/proc/{process}/task/{thread}/schedstat"));
                cpu.living += stat.map_or(0, |stat| first_number(&stat)) as f64 / 1e9;
            }
        }
        cpu
    }

    /// What was used since then. Where both ways differ by more than the second is coarse,
    /// threads have come and gone, of which only the second knows.
    pub fn seconds_since(&self, before: &Cpu) -> f64 {
        let (living, all) = (self.living - before.living, self.all - before.all);
        if (living - all).abs() > 0.05 { all } else { living }
    }
}

/// A process and all that descend from it.
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

/// The memory of these processes in KiB; what several share counts once.
pub fn memory_kib(processes: &[u32]) -> u64 {
    let pss = |process: &u32| {
        let rollup = read(&format!("/proc/{process}/smaps_rollup"))?;
        Some(first_number(rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?))
    };
    processes.iter().filter_map(pss).sum()
}

/// `utime` and `stime`. The name of the program stands before them, in parentheses, and may
/// have spaces of its own.
fn ticks(stat: &str) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
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

/// `None` if the process has ended meanwhile.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_behind_an_awkward_name() {
        let stat = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 1 0 100 0 0";
        assert_eq!((parent(stat), ticks(stat)), (Some(7), 300));
    }

    #[test]
    fn this_process() {
        let ours = tree(std::process::id());
        assert!(ours.contains(&std::process::id()));
        assert!(memory_kib(&ours) > 100);
        let before = Cpu::of(&ours);
        let mut sum = 0u64;
        (0..20_000_000).for_each(|number| sum = std::hint::black_box(sum + number));
        assert!(Cpu::of(&ours).seconds_since(&before) > 0.0);
    }

    #[test]
    fn threads_that_have_ended_count() {
        let cpu = |living, all| Cpu { living, all };
        assert_eq!(cpu(1.234, 1.23).seconds_since(&cpu(0.0, 0.0)), 1.234);
        assert_eq!(cpu(0.5, 3.0).seconds_since(&cpu(1.0, 1.0)), 2.0);
    }
}
