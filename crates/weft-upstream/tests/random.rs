//! The first random number, in a process without other tests.

use std::fs;
use std::time::Duration;

use weft_upstream::ReverseProxy;

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn time_of_draw() -> Duration {
    let draw = || {
        let start = cpu_time();
        aws_lc_rs::rand::fill(&mut [0; 2]).unwrap();
        cpu_time() - start
    };
    // A thread of its own, as of a worker.
    std::thread::spawn(draw).join().unwrap()
}

/// The time of the collection of entropy is not spent in the thread that needs a number first.
#[test]
fn an_upstream_with_a_name_draws_the_first_random_number() {
    let _proxy = ReverseProxy::new(["http://a.example"]).unwrap();
    let time = time_of_draw();
    assert!(time < Duration::from_millis(20), "{time:?}");
}
