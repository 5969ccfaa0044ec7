//! strace: counts a server's system calls under wrk's load. It slows the server down: only the
//! counts are meaningful.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Run, wrk::Wrk};
use crate::Result;
use crate::stats::Sample;

pub fn run(run: &Run<'_>, wrk: &Wrk) -> Result<Sample> {
    let summary = run.folder.join("strace");
    let processes = run.server.processes();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-o"]).arg(&summary);
    for process in &processes {
        strace.args(["-p", &process.to_string()]);
    }
    let mut strace =
        strace.stderr(Stdio::null()).spawn().map_err(|error| format!("strace: {error}"))?;
    let result = wait_until_traced(&processes).and_then(|()| wrk.run(run));
    stop(&mut strace);
    let calls = calls(&fs::read_to_string(&summary).unwrap_or_default());
    let requests = result?.requests;
    if requests == 0 {
        return Err("no request succeeded".into());
    }
    // Times are dominated by strace and are not reported.
    Ok(Sample {
        requests,
        seconds: f64::NAN,
        cpu_seconds: f64::NAN,
        calls: Some(calls),
        ..Sample::default()
    })
}

fn wait_until_traced(processes: &[u32]) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    let is_traced = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    };
    while !processes.iter().all(is_traced) {
        if Instant::now() > deadline {
            return Err("strace did not attach to the server within five seconds".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Interrupts strace, which then writes its summary.
fn stop(strace: &mut Child) {
    let _ = kill_process(Pid::from_child(strace), Signal::INT);
    let _ = strace.wait();
}

/// Returns the number of calls per system call. The columns are: % time, seconds, usecs/call,
/// calls, errors (which may be missing), syscall.
fn calls(summary: &str) -> BTreeMap<String, u64> {
    let call = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (&name, count) = (columns.last()?, columns.get(3)?.parse().ok()?);
        (name != "total").then(|| (name.to_owned(), count))
    };
    summary.lines().filter_map(call).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn parses_summary_of_strace() {
        let calls = super::calls(
            "% time     seconds  usecs/call     calls    errors syscall\n\
             ------ ----------- ----------- --------- --------- ----------------\n \
             60.00    0.010000           5      2000           sendto\n \
             40.00    0.010000           5      2010        10 recvfrom\n\
             ------ ----------- ----------- --------- --------- ----------------\n\
             100.00    0.020000           5      4010        10 total\n",
        );
        let calls: Vec<_> = calls.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(calls, [("recvfrom", 2010), ("sendto", 2000)]);
    }
}
