//! User-space instructions per request, which the load of the machine does not change: the difference
//! of two runs under callgrind, with few and with many requests of one connection.

use std::fs;

use crate::Result;
use crate::args::Options;
use crate::build::Programs;
use crate::load::{H2load, Run};
use crate::machine::Machine;
use crate::peer::{Origin, Peer};
use crate::peers::named;
use crate::request::Scheme;
use crate::server::Launcher;
use crate::site::Site;
use crate::workload::Workload;

const FEW: u32 = 500;
const MANY: u32 = 3_500;

/// Prints a table of the selected peers that are crates, for the selected workloads of HTTP/1.
pub fn print(options: &Options, machine: &Machine, site: &Site, programs: &Programs) -> Result<()> {
    let launcher = Launcher::new(machine, programs, site);
    for workload in options.workloads.iter().filter(|it| it.request.scheme == Scheme::Http) {
        let is_selected = |peer: &&&str| {
            matches!(named(peer).origin, Origin::Crate(..))
                && options.peers.iter().any(|name| name == *peer)
                && programs.has(peer)
        };
        let mut first = None;
        for name in workload.peers.iter().filter(is_selected) {
            let count = |requests| collected(workload, named(name), requests, &launcher);
            let each = (count(MANY)? - count(FEW)?) as f64 / f64::from(MANY - FEW);
            let ratio = each / *first.get_or_insert(each);
            println!("{:16} {name:16} {each:8.0} {ratio:6.3}", workload.name);
        }
    }
    Ok(())
}

/// Returns the instructions of a server for this number of requests, with its start and its end.
fn collected(
    workload: &Workload,
    peer: &Peer,
    requests: u32,
    launcher: &Launcher<'_>,
) -> Result<u64> {
    let Launcher { machine, site, .. } = launcher;
    let wrapper = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let cpus = machine.cpus_for(1);
    let server = launcher.start_under(&wrapper.map(str::to_owned), peer, 1, &cpus, 0)?;
    let load = H2load { requests: Some(requests), connections: 1, streams: 1 };
    let (request, folder) = (&workload.request, &site.run);
    let result = load.run(&Run { server: &server, request, seconds: 1, machine, folder, site })?;
    if result.requests != u64::from(requests) {
        return Err(format!("{} of {requests} requests failed", result.errors));
    }
    drop(server);
    let stderr = fs::read_to_string(launcher.stderr()).unwrap_or_default();
    let count =
        stderr.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count.ok_or(format!("no line 'Collected' in the output of callgrind: {stderr}"))
}
