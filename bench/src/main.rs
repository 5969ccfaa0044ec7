//! Weft beside other servers: starts them, loads them, writes a report.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml -- --quick`; `--help` says more.

mod answer; // one request, and whether the answer is right
mod args; // the command line
mod build; // the peers that have to be built, the packages that are missing
mod chart; // SVG
mod experiments; // further peers and workloads
mod csv; // the samples, to be read by other programs
mod load; // what the servers are loaded with
mod machine; // cores, kernel, versions
mod measure; // rounds over peers
mod peer; // who is measured, and how each is started
mod process; // what /proc says of a server's processes
mod report; // REPORT.md
mod server; // a peer that runs
mod site; // the files that are served
mod stats; // samples, medians, ratios
mod targets; // what Weft means to reach
mod workload; // what is measured

use std::process::ExitCode;

/// What goes wrong is told to whoever runs this, and ends a measurement or all of them.
type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    match args::read().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: args::Options) -> Result<()> {
    if options.list {
        workload::all().for_each(|workload| println!("{:16} {}", workload.name, workload.title));
        return Ok(());
    }
    if options.install {
        build::install()?;
    }
    let peers = build::peers(&options)?;
    let machine = machine::Machine::new(&options)?;
    machine.take_load_cores()?;
    let site = site::Site::new()?;
    let found = measure::all(&options, &machine, &site, &peers);
    csv::write(&options.out, &found)?;
    chart::write(&options.out, &found)?;
    report::write(&options, &machine, &peers, &found)?;
    println!("{}", options.out.join("REPORT.md").display());
    Ok(())
}
