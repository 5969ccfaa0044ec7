//! Caddyfiles of `tests/import_caddy`: the imported configurations are as written beside them, and
//! Weft gives clients nothing that Caddy does not.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;

use super::ask::{Answer, send};
use super::machine::{Machine, files};
use crate::common::external::{own_address, start_caddy};
use crate::common::{Program, Weft, has_tool, run};
use crate::idioms::file::Request;

/// Configurations that are tested at the same time.
const THREADS: usize = 4;

/// Paths of the requests, besides the paths in the Caddyfile.
const PATHS: [&str; 66] = [
    "/",
    "/index.html",
    "/about",
    "/about.html",
    "/missing",
    "/missing.css",
    "/robots.txt",
    "/style.css",
    "/assets",
    "/assets/app.css",
    "/assets/x.php",
    "/ASSETS/app.css",
    "/docs",
    "/docs/",
    "/docs/guide.html",
    "/DOCS/guide.html",
    "/docs%2Fguide.html",
    "/docs/../private/plan.txt",
    "/docs/%2e%2e/private/plan.txt",
    "/docs/..%2Fprivate/plan.txt",
    "//docs//guide.html",
    "/private",
    "/private/",
    "/private/plan.txt",
    "/private/key.pem",
    "/private/report.php",
    "/PRIVATE/plan.txt",
    "/Private/plan.txt",
    "/%70rivate/plan.txt",
    "//private/plan.txt",
    "/./private/plan.txt",
    "/x/../private/plan.txt",
    "/private%2Fplan.txt",
    "/private;x/plan.txt",
    "/private/plan.txt/",
    "/private/plan.txt%20",
    "/.env",
    "/.git/config",
    "/.htaccess",
    "/.well-known/security.txt",
    "/backup.sql",
    "/BACKUP.SQL",
    "/backup.tar.gz",
    "/backup.sql/x",
    "/admin",
    "/admin/",
    "/admin/index.php",
    "/Admin/index.php",
    "/index.php",
    "/index.php/x",
    "/info.php",
    "/INFO.PHP",
    "/uploads/evil.php",
    "/uploads/evil.PHP",
    "/uploads/evil.phtml",
    "/uploads/x.php.jpg",
    "/uploads/pic.png/x.php",
    "/config.php",
    "/config/database.yml",
    "/CONFIG/database.yml",
    "/vendor/x.php",
    "/data/pages/start.txt",
    "/data/store.db",
    "/wp-config.php",
    "/wp-config.php.bak",
    "/static/app.css",
];

const METHODS: [&str; 4] = ["GET", "HEAD", "POST", "OPTIONS"];

/// Returns the hosts of a Caddyfile that are served without TLS on port 80.
fn hosts(text: &str) -> Vec<String> {
    let words = text.lines().filter(|line| line.starts_with("http://")).flat_map(|line| {
        line.trim_end_matches('{').split([',', ' ']).filter(|word| !word.is_empty())
    });
    let names = words.filter_map(|word| word.strip_prefix("http://"));
    names.filter(|name| !name.contains(':')).map(str::to_owned).collect()
}

/// Returns the targets of requests: the fixed ones, and those made of the paths in the Caddyfile.
fn targets(text: &str) -> Vec<String> {
    let mut targets: Vec<String> = PATHS.map(str::to_owned).into();
    let words = text.split([' ', '\n', '\t']).filter(|word| {
        word.starts_with('/') && !word.starts_with("/srv") && !word.contains(['{', '}'])
    });
    for word in words {
        let base = word.trim_end_matches(['*', '/']).to_owned();
        for end in
            ["", "/", "/a", "/plan.txt", "/a/../b", "x", "/guide.html", "/index.html", "/a?b=c"]
        {
            targets.push(format!("{base}{end}"));
        }
        targets.push(base.to_ascii_uppercase());
        targets.push(format!("{}/a", base.to_ascii_uppercase()));
        targets.push(format!("/x/..{base}/a"));
        targets.push(format!("/{base}/a"));
    }
    targets.retain(|target| target.starts_with('/') && !target.contains('*'));
    targets.sort();
    targets.dedup();
    targets
}

/// Imports a Caddyfile. Returns the result without the differences that all configurations have.
fn import(machine: &Machine, path: &Path) -> (String, u8) {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let own = machine.path().join(name);
    fs::create_dir_all(&own).unwrap();
    let source = own.join("Caddyfile");
    fs::write(&source, machine.fill(&fs::read_to_string(path).unwrap())).unwrap();
    let users = own.join("users");
    let output =
        run([Path::new("import"), Path::new("caddy"), &source, Path::new("--users"), &users]);
    let status = output.status.unwrap_or(-1);
    assert!(matches!(status, 0 | 3), "{name}: {}", output.stderr);
    let (_, text) = output.stdout.split_once("\n\n").expect("an empty line");
    (text.to_owned(), status as u8)
}

/// `WEFT_WRITE_IMPORTED=1` writes the expected files.
#[test]
fn imported_caddyfiles_are_as_expected_and_start() {
    let Some(machine) = Machine::start() else { return };
    let files = files("import_caddy", "caddy");
    assert!(files.len() >= 20, "{files:?}");
    let mut failures = Vec::new();
    for path in files {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let (text, status) = import(&machine, &path);
        let file = machine.path().join(name).join("weft.toml");
        fs::write(&file, &text).unwrap();
        let check = run([Path::new("check"), &file]);
        // Warnings, such as about pages of errors, are no errors.
        if !matches!(check.status, Ok(0 | 3)) {
            failures.push(format!("{name}: {}", check.stderr));
        }
        machine.assert_lines_are_short(name, &text);
        let formatted = run([Path::new("fmt"), Path::new("--check"), &file]);
        assert_eq!(formatted.status, Ok(0), "{name}: {}", formatted.stdout);
        let found = format!("# Exit status {status}.\n\n{}", machine.restore(&text));
        let expected = path.with_extension("toml");
        if std::env::var_os("WEFT_WRITE_IMPORTED").is_some() {
            fs::write(&expected, &found).unwrap();
        }
        if fs::read_to_string(&expected).unwrap_or_default() != found {
            failures.push(format!("{name}: the result differs:\n{found}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Starts Caddy with the sites of a Caddyfile at an address.
fn start(machine: &Machine, name: &str, text: &str, address: SocketAddr) -> Program {
    let folder = machine.path().join(format!("{name}-caddy"));
    fs::create_dir_all(&folder).unwrap();
    let mut all = "{\n admin off\n auto_https off\n log {\n level ERROR\n }\n}\n".to_owned();
    for line in machine.fill(text).lines() {
        let Some(rest) = line.strip_prefix("http://") else {
            all.push_str(&format!("{line}\n"));
            continue;
        };
        let has_block = rest.ends_with('{');
        let words = rest.trim_end_matches('{').split([',', ' ']).filter(|word| !word.is_empty());
        let words = words.map(|word| {
            let name = word.trim_start_matches("http://");
            format!("http://{name}:{}", address.port())
        });
        let sites = words.collect::<Vec<_>>().join(", ");
        let open = if has_block { " {" } else { "\n" };
        all.push_str(&format!("{sites}{open}\n bind {}\n", address.ip()));
    }
    fs::write(folder.join("Caddyfile"), all).unwrap();
    start_caddy(&folder, address)
}

/// Sends all requests of a Caddyfile to both servers, and returns the responses of Weft that
/// disclose more, with the numbers of equal and of all responses.
fn compare(machine: &Machine, path: &Path, index: usize) -> (Vec<String>, usize, usize) {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let text = fs::read_to_string(path).unwrap();
    let address = own_address(9, 9_700 + index as u16);
    let _caddy = start(machine, name, &text, address);
    let (imported, _) = import(machine, path);
    let weft: Weft = machine.start_weft(name, &imported.replace("\":80\"", "\"127.0.0.1:0\""));
    let (mut open, mut equal, mut count, mut sent) = (Vec::new(), 0, 0, 0);
    let mut hosts = hosts(&text);
    hosts.push("unknown.example".to_owned());
    for host in &hosts {
        for target in targets(&text) {
            let fields = text.lines().filter_map(|line| line.strip_prefix("# Fields: "));
            let with_fields = fields.map(|fields| ("GET", format!(" [{fields}]")));
            let plain = METHODS.iter().map(|method| (*method, String::new()));
            for (method, fields) in plain.chain(with_fields) {
                // Most rules are about paths.
                sent += 1;
                if method != "GET" && !text.contains("method") && sent % 7 != 0 {
                    continue;
                }
                let host = host.replace('*', "other");
                let line = format!("{method} http://{host}{target}{fields} -> 200");
                let request = Request::parse(&line);
                let [own, other]: [Answer; 2] =
                    [weft.address(), address].map(|address| send(address, &request));
                count += 1;
                let is_equal = own.is_closed() && other.is_closed() || own.status == other.status;
                equal += usize::from(is_equal);
                if !is_equal && std::env::var_os("WEFT_SHOW_DIFFERENCES").is_some() {
                    println!("{name}: {line}: {} for {}", own.status, other.status);
                }
                let with_slash = || with_slash(&request, address);
                if let Some(reason) = own.opens(&other)
                    && !is_of_folder(&own, &request.target, with_slash)
                    && !own.content.starts_with(FRONT_CONTROLLER)
                {
                    let (own, other) = ((own.status, own.content), (other.status, other.content));
                    open.push(format!("{name}: {line}: {reason}: {own:?}, not {other:?}"));
                }
            }
        }
    }
    weft.stop();
    (open, equal, count)
}

/// The script for paths without a file, which anybody may run.
const FRONT_CONTROLLER: &str = "ran www/index.php";

/// Returns true if a path without a slash at its end only leads to the path with it: a prefix of
/// Weft matches both, and Weft redirects to folders without an index, too.
fn is_of_folder(own: &Answer, target: &str, with_slash: impl FnOnce() -> Answer) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    own.location == format!("{path}/") || !path.ends_with('/') && !with_slash().is_closed()
}

/// Returns the response of Caddy to the path with a slash at its end.
fn with_slash(request: &Request, address: SocketAddr) -> Answer {
    let path = request.target.split('?').next().unwrap_or_default();
    let line = format!("{} http://{}{path}/ -> 200", request.method, request.host);
    send(address, &Request::parse(&line))
}

#[test]
fn imported_caddyfiles_open_nothing() {
    if !has_tool("caddy") {
        return;
    }
    let Some(machine) = Machine::start() else { return };
    let mut files = files("import_caddy", "caddy");
    // The others have TLS, several ports, or upstreams that do not exist.
    files.retain(|path| {
        let text = fs::read_to_string(path).unwrap();
        !text.starts_with('{') && !text.contains("rate_limit") && !text.contains("dynamic srv")
    });
    let next = Mutex::new(files.iter().enumerate());
    let found = Mutex::new((Vec::new(), 0, 0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some((index, path)) = next.lock().unwrap().next() else { return };
                    let (open, equal, count) = compare(&machine, path, index);
                    let mut found = found.lock().unwrap();
                    found.0.extend(open);
                    found.1 += equal;
                    found.2 += count;
                }
            });
        }
    });
    let (open, equal, count) = found.into_inner().unwrap();
    println!("{} files, {count} requests, {equal} with the same status", files.len());
    assert!(open.is_empty(), "{} of {count} requests:\n{}", open.len(), open.join("\n"));
    // Most responses are equal, so that the comparison has a meaning.
    assert!(equal * 10 >= count * 9, "{equal} of {count}");
}
