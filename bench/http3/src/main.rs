//! The load client for HTTP/3: one thread, and each response is verified.
//!
//! `http3-load 127.0.0.1:8443 /index.html FILE --connections 64 --streams 64`; see `--help`.

mod client; // the event loop
mod connection; // a connection with its requests
mod options; // the command line
mod request; // requests that differ
mod response; // verification of responses
mod tls; // configuration of TLS and transport

use std::error::Error;
use std::io::Read;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::client::{Client, Step};
use crate::options::Options;
use crate::response::Expected;

/// Number of handshakes in progress while the connections are opened, and with `--handshakes`.
const HANDSHAKES: usize = 16;

/// Number of failed handshakes that end a measurement.
const MAX_FAILED_HANDSHAKES: u64 = 20;

/// Maximum time for the handshakes of all connections.
const MAX_OPENING: Duration = Duration::from_secs(60);

/// Maximum time between two turns of the loop.
const TURN: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let options = match options::read() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{}", options::HELP);
            return ExitCode::FAILURE;
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("http3-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let expected = Expected::new(std::fs::read(&options.file)?);
    let mut client = Client::new(options, tls::config(options)?, expected)?;
    if !options.handshakes {
        open_all(&mut client, options)?;
    }
    match (options.idle, options.handshakes) {
        (true, _) => idle(&mut client, options)?,
        (false, true) => {
            let until = Instant::now() + Duration::from_millis(options.warm_up_ms);
            handshakes(&mut client, until)?;
            measure(&mut client, options, handshakes)?;
        }
        (false, false) if options.requests.is_none() => {
            let until = Instant::now() + Duration::from_millis(options.warm_up_ms);
            requests(&mut client, until, options.streams)?;
            measure(&mut client, options, |client, until| {
                requests(client, until, options.streams)
            })?;
        }
        (false, false) => {
            measure(&mut client, options, |client, until| {
                requests(client, until, options.streams)
            })?;
        }
    }
    client.close_all();
    Ok(())
}

/// Opens all connections without requests.
fn open_all(client: &mut Client<'_>, options: &Options) -> Result<(), Box<dyn Error>> {
    let until = Instant::now() + MAX_OPENING;
    loop {
        let (mut open, connected) = client.counts();
        if connected == options.connections {
            return Ok(());
        }
        if Instant::now() > until || client.totals.errors > 0 {
            let reason = client.totals.first_error.take().unwrap_or_default();
            return Err(format!("{connected} connections of {open} {reason}").into());
        }
        while open < options.connections && open - connected < HANDSHAKES {
            client.open()?;
            open += 1;
        }
        client.turn(Instant::now() + TURN, |_| Step::Request(0))?;
    }
}

/// Keeps requests in progress on all connections.
fn requests(client: &mut Client<'_>, until: Instant, streams: usize) -> Result<(), Box<dyn Error>> {
    client.wake_all();
    while Instant::now() < until && client.totals.errors == 0 {
        client.turn(until.min(Instant::now() + TURN), |_| Step::Request(streams))?;
        if client.budget == 0 && client.is_idle() {
            break;
        }
    }
    Ok(())
}

/// Keeps handshakes in progress, each followed by one request and the end of its connection.
fn handshakes(client: &mut Client<'_>, until: Instant) -> Result<(), Box<dyn Error>> {
    while Instant::now() < until && client.totals.errors < MAX_FAILED_HANDSHAKES {
        while client.counts().0 < HANDSHAKES {
            client.open()?;
        }
        client.turn(until.min(Instant::now() + TURN), |connection| match connection.completed {
            0 => Step::Request(1),
            _ => Step::Close,
        })?;
    }
    Ok(())
}

fn idle(client: &mut Client<'_>, options: &Options) -> Result<(), Box<dyn Error>> {
    client.budget = options.connections as u64;
    client.wake_all();
    let once = |connection: &crate::connection::Connection| {
        Step::Request(usize::from(connection.completed == 0))
    };
    let until = Instant::now() + MAX_OPENING;
    while client.totals.requests < options.connections as u64 && client.totals.errors == 0 {
        if Instant::now() > until {
            return Err("not all connections have got a response".into());
        }
        client.turn(Instant::now() + TURN, once)?;
    }
    println!("begin");
    let (sender, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        wait_for_end_of_input();
        sender.send(())
    });
    while end.try_recv().is_err() {
        client.turn(Instant::now() + TURN, once)?;
    }
    let errors = client.totals.errors;
    println!("end requests={} errors={errors} open={}", client.totals.requests, client.counts().0);
    Ok(())
}

fn measure(
    client: &mut Client<'_>,
    options: &Options,
    load: impl Fn(&mut Client<'_>, Instant) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let (requests, bytes) = (client.totals.requests, client.totals.bytes);
    client.totals.latencies.clear();
    println!("begin");
    let (start, cpu) = (Instant::now(), cpu_time());
    client.budget = options.requests.unwrap_or(u64::MAX);
    let seconds = if options.requests.is_some() { 600.0 } else { options.seconds };
    load(client, start + Duration::from_secs_f64(seconds))?;
    let (elapsed, cpu) = (start.elapsed(), cpu_time() - cpu);
    let totals = &mut client.totals;
    if let Some(error) = &totals.first_error {
        eprintln!("http3-load: {error}");
    }
    totals.latencies.sort_by(f32::total_cmp);
    let count = totals.latencies.len();
    let percentile = |per_mille: usize| {
        totals
            .latencies
            .get((count * per_mille / 1000).min(count.max(1) - 1))
            .copied()
            .unwrap_or(0.0)
    };
    println!(
        "end requests={} errors={} seconds={:.3} bytes={} client_cpu={:.6} p50={:.0} p99={:.0} p999={:.0}",
        totals.requests - requests,
        totals.errors,
        elapsed.as_secs_f64(),
        totals.bytes - bytes,
        cpu.as_secs_f64(),
        percentile(500),
        percentile(990),
        percentile(999),
    );
    wait_for_end_of_input();
    Ok(())
}

fn wait_for_end_of_input() {
    let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
