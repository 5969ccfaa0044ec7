//! Common parts of the experiments. Those that are servers are started as
//! `NAME ADDRESS WORKERS VARIANT`, also by the program that measures the peers.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

/// Returns the third argument, the variant of the experiment.
pub fn variant() -> String {
    std::env::args().nth(3).expect("usage: experiment ADDRESS WORKERS VARIANT")
}

/// The name of a measured function, and the function.
pub type Candidate<'a> = (&'a str, &'a dyn Fn());

const ROUNDS: usize = 15;
const CALLS: u32 = 200_000;

/// Measures functions in rounds. Prints for each the median of the nanoseconds per call, and the
/// ratio to the first function with the lowest and the highest ratio of a round.
pub fn compare(title: &str, candidates: &[Candidate<'_>]) {
    let mut times = vec![Vec::new(); candidates.len()];
    for round in 0..ROUNDS {
        for index in 0..candidates.len() {
            let index = (index + round) % candidates.len();
            times[index].push(time(candidates[index].1));
        }
    }
    println!("| {title} | ns per call | ratio to the first |\n| --- | --- | --- |");
    for ((name, _), samples) in candidates.iter().zip(&times) {
        let ratios = samples.iter().zip(&times[0]).map(|(sample, first)| sample / first);
        let (low, high) = ratios
            .fold((f64::MAX, f64::MIN), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
        let (median, first) = (median(samples), median(&times[0]));
        println!("| {name} | {median:.1} | {:.4} ({low:.4} – {high:.4}) |", median / first);
    }
    println!();
}

fn time(function: &dyn Fn()) -> f64 {
    let before = cpu_nanoseconds();
    for _ in 0..CALLS {
        black_box(function)();
    }
    (cpu_nanoseconds() - before) as f64 / f64::from(CALLS)
}

/// Returns the CPU time of this thread, which excludes other work of the machine.
pub fn cpu_nanoseconds() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}
