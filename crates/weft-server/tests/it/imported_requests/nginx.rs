//! Configurations of `tests/import`: Weft discloses nothing that nginx does not, and each other
//! difference is in `differences.txt` with its reason.
//!
//! `WEFT_IMPORT=NAME` selects the configurations whose names have that text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Mutex;

use super::ask::{Answer, send};
use super::machine::{Machine, files};
use crate::common::external::{nginx_temp_paths, own_address, start_nginx};
use crate::common::{Program, has_tool, run};
use crate::idioms::file::Request;

/// Configurations that are tested at the same time.
const THREADS: usize = 4;

/// Server whose addresses are used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    Nginx,
    Weft,
}

/// Addresses of the `listen` directives of a configuration, as they are written.
struct Listeners {
    written: Vec<String>,
    first_port: u16,
}

impl Listeners {
    fn new(text: &str, index: usize) -> Listeners {
        let words = text.lines().filter_map(|line| line.trim().strip_prefix("listen "));
        let words = words.filter_map(|rest| rest.trim_end_matches(';').split(' ').next());
        let mut written: Vec<String> =
            words.map(|word| word.trim_end_matches(';').to_owned()).collect();
        written.sort();
        written.dedup();
        // The longest first, so that none is a part of another one.
        written.sort_by_key(|word| usize::MAX - word.len());
        Listeners { written, first_port: 10_000 + 40 * index as u16 }
    }

    /// Returns the address of this test for an address of the configuration.
    fn address(&self, index: usize, server: Server) -> SocketAddr {
        let port = self.first_port + 2 * index as u16 + u16::from(server == Server::Weft);
        match self.written[index].starts_with('[') {
            true => (Ipv6Addr::LOCALHOST, port).into(),
            false => own_address(10, port),
        }
    }

    fn fill(&self, text: &str, server: Server) -> String {
        let lines = text.lines().map(|line| match line.trim().strip_prefix("listen ") {
            Some(rest) => {
                let word = rest.split([' ', ';']).next().unwrap_or_default();
                let index = self.written.iter().position(|it| it == word).expect("an address");
                let address = self.address(index, server).to_string();
                line.replacen(word, &address, 1)
            }
            None => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns the address of a request.
    fn of_request(&self, request: &Request, server: Server) -> SocketAddr {
        let named = request.fields.iter().find(|(name, _)| name == "Listener");
        let default = if request.is_secure { "443" } else { "80" };
        let wanted = named.map_or(default, |(_, value)| value);
        let find = |wanted: &str| self.written.iter().position(|it| it == wanted);
        let found = find(wanted).or_else(|| find(&format!("[::]:{wanted}")));
        self.address(found.unwrap_or_else(|| panic!("{}: no listener", request.line)), server)
    }
}

fn start_nginx_with(machine: &Machine, own: &Path, text: &str, first: SocketAddr) -> Program {
    let at = own.display();
    let config = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr crit;\nevents {{}}\n\
         http {{ access_log off; include /etc/nginx/mime.types; {}\n{}\n}}\n",
        nginx_temp_paths(own),
        machine.fill(text)
    );
    fs::write(own.join("nginx.conf"), config).unwrap();
    start_nginx(own, first)
}

/// Result of a configuration.
#[derive(Default)]
struct Comparison {
    /// Responses of Weft that disclose more.
    open: Vec<String>,
    /// Differences by the line in the list.
    others: BTreeMap<String, String>,
    /// Recorded statuses that nginx does not have.
    outdated: Vec<String>,
    requests: usize,
    /// The import says that nothing is lost.
    is_complete: bool,
}

fn compare(machine: &Machine, path: &Path, index: usize, has_nginx: bool) -> Comparison {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let own = machine.path().join(name);
    fs::create_dir_all(&own).unwrap();
    let text = fs::read_to_string(path).unwrap();
    let listeners = Listeners::new(&text, index);
    let first = listeners.address(0, Server::Nginx);
    let _nginx = has_nginx
        .then(|| start_nginx_with(machine, &own, &listeners.fill(&text, Server::Nginx), first));
    let source = own.join("site.conf");
    fs::write(&source, machine.fill(&listeners.fill(&text, Server::Weft))).unwrap();
    let imported = run([Path::new("import"), Path::new("nginx"), &source]);
    assert!(matches!(imported.status, Ok(0 | 3)), "{name}: {}", imported.stderr);
    let weft = machine.start_weft(name, &imported.stdout);
    let is_complete = imported.status == Ok(0);
    let mut comparison = Comparison { is_complete, ..Comparison::default() };
    let requests = fs::read_to_string(path.with_extension("requests")).unwrap();
    for line in requests.lines().filter(|line| !line.trim().is_empty()) {
        let request = Request::parse(line);
        let asked = line.split(" -> ").next().unwrap_or_default();
        let ask = |server| send(listeners.of_request(&request, server), &request, machine.path());
        let other = match has_nginx {
            true => ask(Server::Nginx),
            false => Answer::of_status(request.statuses[0]),
        };
        let own = ask(Server::Weft);
        comparison.requests += 1;
        let status = other.recorded_status();
        if status != request.statuses[0] {
            comparison.outdated.push(format!("{name}: {line}: nginx responds with {status}"));
        }
        let shown = format!("{} for {}", own.show(), other.show());
        if let Some(reason) = own.opens(&other) {
            comparison.open.push(format!("{name}: {asked}: {reason}: {shown}"));
        } else if !own.is_like(&other) {
            comparison.others.insert(format!("{name} | {asked}"), shown);
        }
    }
    weft.stop();
    comparison
}

/// Differences that are known: `NAME | REQUEST | REASON`, and the reasons of deliberate ones:
/// `= REASON | WHY`.
struct KnownDifferences {
    reasons: BTreeMap<String, String>,
    deliberate: BTreeSet<String>,
}

impl KnownDifferences {
    fn read() -> KnownDifferences {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/differences.txt");
        let text = fs::read_to_string(file).unwrap();
        let mut known = KnownDifferences { reasons: BTreeMap::new(), deliberate: BTreeSet::new() };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (difference, reason) = line.rsplit_once(" | ").expect("a reason");
            assert!(!reason.trim().is_empty(), "{line}");
            match difference.strip_prefix("= ") {
                Some(deliberate) => drop(known.deliberate.insert(deliberate.to_owned())),
                None => drop(known.reasons.insert(difference.to_owned(), reason.to_owned())),
            }
        }
        known
    }

    fn is_deliberate(&self, difference: &str) -> bool {
        self.reasons.get(difference).is_some_and(|reason| self.deliberate.contains(reason))
    }
}

/// Minimum number of configurations of 40 that respond as nginx does, except for deliberate
/// differences.
const MIN_EQUAL_OF_40: usize = 34;

#[test]
fn imported_configurations_open_nothing_and_differ_as_known() {
    let Some(machine) = Machine::start() else { return };
    let has_nginx = has_tool("nginx");
    let selected = std::env::var("WEFT_IMPORT").unwrap_or_default();
    let mut files = files("import", "conf");
    files.retain(|path| path.to_str().unwrap().contains(&selected));
    let next = Mutex::new(files.iter().enumerate());
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some((index, path)) = next.lock().unwrap().next() else { return };
                    let comparison = compare(&machine, path, index, has_nginx);
                    found.lock().unwrap().push(comparison);
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let all = |of: fn(&Comparison) -> &Vec<String>| -> Vec<String> {
        found.iter().flat_map(|it| of(it).iter().cloned()).collect()
    };
    let requests: usize = found.iter().map(|it| it.requests).sum();
    let open = all(|it| &it.open);
    assert!(open.is_empty(), "{} of {requests} requests:\n{}", open.len(), open.join("\n"));
    let outdated = all(|it| &it.outdated);
    assert!(outdated.is_empty(), "{}", outdated.join("\n"));
    let others: BTreeMap<&String, &String> = found.iter().flat_map(|it| &it.others).collect();
    let known = KnownDifferences::read();
    let is_new = |(difference, _): &(&&String, &&String)| !known.reasons.contains_key(**difference);
    let new: Vec<String> =
        others.iter().filter(is_new).map(|(it, shown)| format!("{it} | {shown}")).collect();
    assert!(new.is_empty(), "{} new differences:\n{}", new.len(), new.join("\n"));
    let complete = found.iter().filter(|it| it.is_complete).flat_map(|it| it.others.keys());
    let silent: Vec<&String> = complete.filter(|it| !known.is_deliberate(it)).collect();
    assert!(silent.is_empty(), "exit status 0 with these differences: {silent:#?}");
    if selected.is_empty() && has_nginx {
        let is_gone = |it: &&String| !others.contains_key(it);
        let gone: Vec<&String> = known.reasons.keys().filter(is_gone).collect();
        assert!(gone.is_empty(), "these do not occur: {gone:#?}");
        let is_equal =
            |it: &&Comparison| it.others.keys().all(|difference| known.is_deliberate(difference));
        let (equal, all) = (found.iter().filter(is_equal).count(), found.len());
        println!("{equal} of {all} configurations have no other than deliberate differences");
        assert!(all >= 40 && equal * 40 >= MIN_EQUAL_OF_40 * all, "{equal} of {all}");
    }
    println!("{requests} requests, {} differences", others.len());
}
