//! What the experiments have in common. The servers among them are started as
//! `NAME ADDRESS WORKERS VARIANT`, by the program that measures the peers, too.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

/// The third argument: which form of the experiment this is.
pub fn variant() -> String {
    std::env::args().nth(3).expect("usage: experiment ADDRESS WORKERS VARIANT")
}

/// A function that is timed beside others.
pub type Candidate<'a> = (&'a str, &'a dyn Fn());

const ROUNDS: usize = 15;
const CALLS: u32 = 200_000;

/// Times functions in turns, and prints for each the median of its nanoseconds per call, and
/// the ratio to the first with the lowest and the highest of a round.
pub fn compare(title: &str, candidates: &[Candidate<'_>]) {
    let mut times = vec![Vec::new(); candidates.len()];
    for round in 0..ROUNDS {
        for turn in 0..candidates.len() {
            let turn = (turn + round) % candidates.len();
            times[turn].push(time(candidates[turn].1));
        }
    }
    println!("| {title} | ns per call | beside the first |\n| --- | --- | --- |");
    for ((name, _), ours) in candidates.iter().zip(&times) {
        let ratios = ours.iter().zip(&times[0]).map(|(ours, first)| ours / first);
        let (low, high) = ratios
            .fold((f64::MAX, f64::MIN), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
        let (ours, first) = (median(ours), median(&times[0]));
        println!("| {name} | {ours:.1} | {:.4} ({low:.4} – {high:.4}) |", ours / first);
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

/// CPU time of this thread: what else the machine does is not counted.
fn cpu_nanoseconds() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}
