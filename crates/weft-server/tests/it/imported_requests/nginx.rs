//! Configurations of `tests/import`: Weft discloses nothing that nginx does not, and each other
//! difference is in `differences.txt` with its reason. Both servers get the requests beside the
//! configuration, and requests for every file of the tree.
//!
//! `WEFT_IMPORT=NAME` selects the configurations whose names have that text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;

use super::ask::{Answer, KeptClient, send};
use super::differences::{KnownDifferences, kinds};
use super::listeners::{Listeners, Server};
use super::machine::{Machine, files};
use super::sweep::{ServerBlock, server_blocks, targets};
use crate::common::external::{nginx_temp_paths, start_nginx};
use crate::common::{Program, has_tool, repository, run};
use crate::idioms::file::Request;

/// Configurations that are tested at the same time.
const THREADS: usize = 4;

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
    name: String,
    /// Responses of Weft that disclose more.
    open: Vec<String>,
    /// Differences by the line in the list.
    others: BTreeMap<String, String>,
    /// Recorded statuses that nginx does not have.
    outdated: Vec<String>,
    requests: usize,
    /// Requests for files of the tree.
    swept: usize,
    /// The import says that nothing is lost.
    is_complete: bool,
}

impl Comparison {
    /// Compares the responses to a request that is written beside the configuration.
    fn add_written(&mut self, request: &Request, own: &Answer, other: &Answer) {
        let name = &self.name;
        let asked = request.line.split(" -> ").next().unwrap_or_default();
        self.requests += 1;
        let status = other.recorded_status();
        if status != request.statuses[0] {
            self.outdated.push(format!("{name}: {}: nginx responds with {status}", request.line));
        }
        let shown = format!("{} for {}", own.show(), other.show());
        if let Some(reason) = own.permits(other) {
            self.open.push(format!("{name}: {asked}: {reason}: {shown}"));
        } else if !own.is_like(other) {
            self.others.insert(format!("{name} | {asked}"), shown);
        } else {
            self.add_kinds(&request.target, asked, own, other);
        }
    }

    /// Adds the kinds of the differences, each with the first request.
    fn add_kinds(&mut self, path: &str, asked: &str, own: &Answer, other: &Answer) {
        for kind in kinds(path, own, other) {
            let values =
                kind.strip_prefix("field ").map(|name| (own.field(name), other.field(name)));
            let shown = || match values {
                Some((own, other)) => format!("{asked}: {own:?} for {other:?}"),
                None => format!("{asked}: {} for {}", own.show(), other.show()),
            };
            self.others.entry(format!("{} | * {kind}", self.name)).or_insert_with(shown);
        }
    }

    /// Requests every file of the tree from a server of the configuration. A file that nginx sends,
    /// or a script that it runs, in response to another request is no secret.
    fn sweep(&mut self, block: &ServerBlock, targets: &BTreeSet<String>, servers: [SocketAddr; 2]) {
        let mut clients = servers.map(|address| KeptClient::new(address, block));
        let ask = |client: &mut KeptClient, target: &str| {
            client.send(&Request::parse(&format!("GET http://{}{target} -> 200", block.host)))
        };
        let responses: Vec<_> = targets
            .iter()
            .map(|target| {
                let [other, own] = clients.each_mut().map(|client| ask(client, target));
                (target, own, other)
            })
            .collect();
        let public: BTreeSet<&str> =
            responses.iter().filter_map(|(_, _, other)| other.source()).collect();
        let [nginx, _] = &mut clients;
        let mut ask_nginx = |target: &str| ask(nginx, target);
        for (target, own, other) in &responses {
            let is_new = own.source().is_some_and(|source| !public.contains(source));
            let asked = format!("{}{target}", block.host);
            let permits = own.permits(other).or(is_new.then_some("a file"));
            match permits.filter(|_| !is_as_other_path(target, own, other, &mut ask_nginx)) {
                Some(reason) => {
                    let shown = format!("{} for {}", own.show(), other.show());
                    self.open.push(format!("{}: {asked}: {reason}: {shown}", self.name));
                }
                None => self.add_kinds(target, &asked, own, other),
            }
        }
        self.swept += responses.len();
    }
}

/// Returns true if the response is nginx's response to another path, for one of two reasons. To
/// Weft, a folder without an index is missing, as a file in it may be. A script gets the path
/// behind it, which may be a slash.
fn is_as_other_path(
    target: &str,
    own: &Answer,
    other: &Answer,
    mut ask_nginx: impl FnMut(&str) -> Answer,
) -> bool {
    let Some(path) = target.strip_suffix('/') else { return false };
    if own.source().is_none() {
        return false;
    }
    let same = |answer: &Answer| answer.status == own.status && answer.source() == own.source();
    matches!(other.status, 403 | 404) && same(&ask_nginx(&format!("{target}none")))
        || other.status == 404 && same(&ask_nginx(path))
}

/// Configuration whose limits of rates refuse many requests for files.
const WITH_RATE_LIMITS: &str = "48-rate-limits";

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
    machine.assert_lines_are_short(name, &imported.stdout);
    let weft = machine.start_weft(name, &imported.stdout);
    let is_complete = imported.status == Ok(0);
    let mut comparison = Comparison { name: name.to_owned(), is_complete, ..Comparison::default() };
    let requests = fs::read_to_string(path.with_extension("requests")).unwrap();
    let lines = requests.lines().filter(|line| !line.trim().is_empty());
    let requests: Vec<Request> = lines.map(Request::parse).collect();
    for request in &requests {
        let ask = |server| send(listeners.of_request(request, server), request);
        let other = match has_nginx {
            true => ask(Server::Nginx),
            false => Answer::of_status(request.statuses[0]),
        };
        comparison.add_written(request, &ask(Server::Weft), &other);
    }
    if has_nginx && name != WITH_RATE_LIMITS {
        let targets = targets(&text, machine.files());
        for block in server_blocks(&text, &requests) {
            let servers =
                [Server::Nginx, Server::Weft].map(|server| listeners.find(&block.listen, server));
            comparison.sweep(&block, &targets, servers);
        }
    }
    weft.stop();
    comparison
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
    let swept: usize = found.iter().map(|it| it.swept).sum();
    let open = all(|it| &it.open);
    let count = requests + swept;
    assert!(open.is_empty(), "{} of {count} requests:\n{}", open.len(), open.join("\n"));
    let outdated = all(|it| &it.outdated);
    assert!(outdated.is_empty(), "{}", outdated.join("\n"));
    let others: BTreeMap<&String, &String> = found.iter().flat_map(|it| &it.others).collect();
    let known = KnownDifferences::read();
    let is_new = |(difference, _): &(&&String, &&String)| !known.has(difference);
    let new: Vec<String> =
        others.iter().filter(is_new).map(|(it, shown)| format!("{it} | {shown}")).collect();
    assert!(new.is_empty(), "{} new differences:\n{}", new.len(), new.join("\n"));
    let complete = found.iter().filter(|it| it.is_complete).flat_map(|it| it.others.keys());
    let silent: Vec<&String> = complete.filter(|it| !known.is_deliberate(it)).collect();
    assert!(silent.is_empty(), "exit status 0 with these differences: {silent:#?}");
    if selected.is_empty() && has_nginx {
        let gone = known.gone(others.keys().copied());
        assert!(gone.is_empty(), "these do not occur: {gone:#?}");
        // The files of the tree are requests that nobody has written for the configuration.
        let is_equal = |it: &&Comparison| {
            let mut written = it.others.keys().filter(|key| {
                let kind = key.split_once(" | * ").map(|(_, kind)| kind);
                kind.is_none_or(|kind| kind.starts_with("field "))
            });
            written.all(|difference| known.is_deliberate(difference))
        };
        let (equal, all) = (found.iter().filter(is_equal).count(), found.len());
        println!("{equal} of {all} configurations have no other than deliberate differences");
        let statuses: BTreeMap<&str, bool> =
            found.iter().map(|it| (&*it.name, it.is_complete)).collect();
        let incomplete = statuses.into_iter().filter(|(_, is_complete)| !is_complete);
        let incomplete: Vec<&str> = incomplete.map(|(name, _)| name).collect();
        assert_eq!(incomplete, known.incomplete, "configurations with the exit status 3");
        let guide = fs::read_to_string(repository("docs/migrating-from-nginx.md")).unwrap();
        let sent = format!("{requests} requests to {all} configurations");
        let of_tree = format!("{swept} requests for files");
        assert!(guide.contains(&sent) && guide.contains(&of_tree), "{sent}, {of_tree}");
        assert!(all >= 40 && equal * 40 >= MIN_EQUAL_OF_40 * all, "{equal} of {all}");
    }
    println!("{requests} requests, {swept} for files of the tree, {} differences", others.len());
}
