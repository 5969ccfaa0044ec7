//! Runs models of concurrent code under shuttle, which chooses the order of threads and tasks.
//!
//! Each model is run many times: with random schedules, and with schedules of few preemptions
//! (PCT). A panic or a deadlock, such as a lost wakeup, fails the model, and the schedule is
//! printed.
//!
//! `WEFT_MODEL_SECONDS` sets the time for each model (default 0.5), and `WEFT_MODEL_SCHEDULE` the
//! schedule of a former failure:
//!
//! ```sh
//! WEFT_MODEL_SECONDS=600 cargo test -p weft-http --test models pipe
//! ```

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

/// A name, and code that is run with each schedule.
pub type Model = (&'static str, fn());

/// Number of preemptions of a PCT schedule.
const PREEMPTIONS: usize = 4;

/// Number of schedules of one runner. A PCT runner estimates the length of a model by its former
/// runs, and must have several.
const ITERATIONS: usize = 200;

/// Runs the models whose name contains one of the arguments, or all without arguments. Options of
/// the standard test harness are ignored.
pub fn run(models: &'static [Model]) {
    let names: Vec<_> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let setting = |name: &str| std::env::var(name).ok();
    let seconds = setting("WEFT_MODEL_SECONDS").map_or(0.5, |text| text.parse().expect("a number"));
    let is_selected =
        |model: &&Model| names.is_empty() || names.iter().any(|n| model.0.contains(n));
    if let Some(schedule) = setting("WEFT_MODEL_SCHEDULE") {
        models.iter().filter(is_selected).for_each(|(_, model)| shuttle::replay(*model, &schedule));
    }
    let next = Mutex::new(models.iter().filter(is_selected));
    let take = || next.lock().unwrap().next();
    let work = || {
        while let Some((name, model)) = take() {
            let schedules = check(name, *model, Duration::from_secs_f64(seconds));
            println!("model {name} ... ok ({schedules} schedules)");
        }
    };
    // Each model takes the same time, and no more than one core.
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
}

/// Runs a model for this time. Returns the number of schedules.
fn check(name: &str, model: fn(), time: Duration) -> usize {
    let start = Instant::now();
    let mut schedules = 0;
    let run = || {
        // At least one runner of each kind.
        while schedules == 0 || start.elapsed() < time {
            schedules += run_with(RandomScheduler::new(ITERATIONS), model);
            schedules += run_with(PctScheduler::new(PREEMPTIONS, ITERATIONS), model);
        }
    };
    // A thread of its own has the model's own settings, and its name is that in the message of a
    // panic.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn_scoped(scope, run).expect("a thread");
        thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    });
    schedules
}

fn run_with(scheduler: impl Scheduler + 'static, model: fn()) -> usize {
    let mut config = Config::new();
    // The default is too small for builds without optimization.
    config.stack_size = 256 << 10;
    // Schedules are printed, and longer ones are unlikely to be useful.
    config.max_steps = MaxSteps::FailAfter(20_000);
    // All atomics are treated as sequentially consistent. The atomics of the models carry no other
    // data.
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(model)
}
