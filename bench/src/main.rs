//! Comparison of Weft with other servers: starts them, applies load, writes a report.
//!
//! Usage: `cargo run --release --manifest-path bench/Cargo.toml -- --quick`; see `--help`.

mod answer; // check of a server's response before it is measured
mod args; // the command line
mod build; // building the peers, checking for missing packages
mod chart; // SVG
mod csv; // all samples in machine-readable form
mod instructions; // instructions per request
mod load; // load generators
mod machine; // CPUs, kernel, versions
mod measure; // rounds over all peers
mod peer; // a measured server and its command
mod peers; // the lists of servers
mod process; // CPU time and memory of a server from /proc
mod report; // REPORT.md
mod request; // the request of a workload
mod server; // a running peer
mod site; // the served files
mod stats; // samples, medians, ratios
mod targets; // the performance targets
mod workload; // a request, its load generator and its servers
mod workloads; // the lists of workloads

use std::process::ExitCode;

/// A result whose error is a message for the user. It ends one measurement or the whole run.
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
        workloads::all().for_each(|workload| println!("{:16} {}", workload.name, workload.title));
        return Ok(());
    }
    if options.install {
        build::install()?;
    }
    let peers = build::programs(&options.selected_peers(), options.root.as_deref())?;
    let machine = machine::Machine::new(&options.server_cpus, &options.load_cpus)?;
    machine.pin_to_load_cpus()?;
    let sets = options.workloads.iter().filter_map(|workload| workload.load.files());
    let site = site::Site::new(&sets.collect::<Vec<_>>(), options.root.as_deref())?;
    if options.instructions {
        return instructions::print(&options, &machine, &site, &peers);
    }
    let tables = measure::all(&options, &machine, &site, &peers);
    csv::write(&options.out, &tables)?;
    chart::write(&options.out, &tables)?;
    report::write(&options, &machine, &peers, &tables)?;
    println!("{}", options.out.join("REPORT.md").display());
    Ok(())
}
