//! Configurations of nginx with scripts: the imported configuration gives clients no file and runs
//! no script that nginx does not. The configurations are in `tests/imported_scripts`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::common::external::{PhpFpm, nginx_temp_paths, own_address, start_nginx};
use crate::common::{PATIENCE, Program, Weft, has_tool, run, weft};

/// Scripts beneath the root of the site. Each one is also requested as if it were one of the
/// others.
const SCRIPTS: [&str; 22] = [
    "index.php",
    "get.php",
    "cron.php",
    "load.php",
    "status.php",
    "update.php",
    "xmlrpc.php",
    "info.php",
    "upper.PHP",
    "old.phtml",
    "admin/index.php",
    "admin/tool.php",
    "admin/in/deep.php",
    "uploads/shell.php",
    "uploads/index.php",
    "uploads/private/shell.php",
    "config/database.php",
    "vendor/autoload.php",
    "data/dump.php",
    "static/leftover.php",
    "errors/404.php",
    "errors/report.php",
];

/// Other files, some of which must stay private.
const FILES: [&str; 17] = [
    "bundles/app.css",
    "style.css",
    "app.js",
    "readme.txt",
    "error.log",
    "backup.sql",
    ".env",
    ".git/config",
    ".htaccess",
    "uploads/photo.jpg",
    "uploads/private/passport.jpg",
    "config/secrets.yml",
    "data/users.db",
    "admin/notes.txt",
    "static/logo.svg",
    "static/index.html",
    "vendor/composer.json",
];

/// Writes the files. Each has a mark with its name: in the text of a script, in its output, and in
/// other files.
fn write_tree(folder: &Path) {
    let write = |name: &str, text: String| {
        let file = folder.join("public").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    for name in SCRIPTS {
        write(name, format!("<?php /* [text of {name}] */ echo '[', 'run of {name}]';\n"));
    }
    FILES.iter().for_each(|name| write(name, format!("[text of {name}]\n")));
    fs::write(folder.join("outside.php"), "<?php /* [text of outside.php] */\n").unwrap();
}

/// Targets of the requests: each file in several forms, and each folder.
fn targets() -> Vec<String> {
    let mut targets = vec!["/".to_owned(), "/none".to_owned(), "/none/".to_owned()];
    for name in SCRIPTS.iter().chain(&FILES) {
        targets.extend(
            ["", "/", "/x", "/x.php", "/x.css", "?a=b", "%20"].map(|end| format!("/{name}{end}")),
        );
        targets.push(format!("/{}", name.replace('.', "%2e")));
        targets.push(format!("//{name}"));
        targets.push(format!("/admin/../{name}"));
        targets.push(format!("/{}", name.rsplit('/').next().unwrap()));
        let folders = name.match_indices('/').map(|(end, _)| &name[..end]);
        targets.extend(folders.flat_map(|it| [format!("/{it}"), format!("/{it}/")]));
    }
    targets.push("/../outside.php".to_owned());
    targets.sort();
    targets.dedup();
    targets
}

/// Returns the marks in the response to a request.
fn marks(server: SocketAddr, host: &str, target: &str) -> BTreeSet<String> {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let response = String::from_utf8_lossy(&response);
    assert!(response.starts_with("HTTP/1.1 "), "{target}: {response:?}");
    let marks = response.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
    let marks = marks.map(|(mark, _)| mark.to_owned());
    marks.filter(|mark| mark.starts_with("text of ") || mark.starts_with("run of ")).collect()
}

fn start_both(name: &str, number: usize, text: &str, folder: &Path) -> (Weft, Program, SocketAddr) {
    let own = folder.join(name);
    fs::create_dir(&own).unwrap();
    let address = own_address(4, 9_500 + number as u16);
    let text = text.replace("LISTEN", &address.to_string());
    let at = own.display();
    let parameters = fs::read("/etc/nginx/fastcgi_params").expect("a file of nginx");
    fs::write(own.join("fastcgi_params"), parameters).unwrap();
    let main = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr crit;\nevents {{}}\n\
         http {{ access_log off; {}\n{text}\n}}\n",
        nginx_temp_paths(&own)
    );
    fs::write(own.join("nginx.conf"), main).unwrap();
    fs::write(own.join("site.conf"), text).unwrap();
    let nginx = start_nginx(&own, address);
    let imported = run([Path::new("import"), Path::new("nginx"), &own.join("site.conf")]);
    assert!(matches!(imported.status, Ok(0 | 3)), "{name}: {}", imported.stderr);
    let file = own.join("weft.toml");
    let result = imported.stdout.replace(&address.to_string(), "127.0.0.1:0");
    fs::write(&file, &result).unwrap();
    let check = run([Path::new("check"), &file]);
    assert_eq!(check.status, Ok(0), "{name}: {}\n{result}", check.stderr);
    let weft =
        Weft::start(weft([Path::new("--config"), &file]).args(["--workers", "1", "--no-log"]));
    (weft, nginx, address)
}

/// Returns the names of the servers.
fn hosts(text: &str) -> Vec<&str> {
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("server_name "));
    names.map(|name| name.trim_end_matches(';')).collect()
}

/// A file or a script that a client gets from Weft is one that some request gets from nginx. It may
/// be another request: the front controller and the pages of errors respond to other paths than in
/// nginx, and a path may go on behind a script.
#[test]
fn imported_scripts_and_files_are_those_of_nginx() {
    if !has_tool("nginx") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_tree(folder.path());
    let Some(fpm) = PhpFpm::start(folder.path()) else { return };
    let configurations = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/imported_scripts");
    let mut files: Vec<_> =
        fs::read_dir(configurations).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 15, "{files:?}");
    let (mut failures, mut shared) = (Vec::new(), 0);
    for (number, file) in files.iter().enumerate() {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(file).unwrap();
        let text = text
            .replace("ROOT", folder.path().to_str().unwrap())
            .replace("FPM", &format!("unix:{}", fpm.socket.display()));
        let (weft, _nginx, address) = start_both(name, number, &text, folder.path());
        for host in hosts(&text) {
            let ask = |target: String| {
                let of_nginx = marks(address, host, &target);
                (of_nginx, marks(weft.address(), host, &target), target)
            };
            let responses: Vec<_> = targets().into_iter().map(ask).collect();
            let open: BTreeSet<_> = responses.iter().flat_map(|(of_nginx, ..)| of_nginx).collect();
            for (of_nginx, of_weft, target) in &responses {
                shared += of_weft.intersection(of_nginx).count();
                let new: Vec<_> = of_weft.iter().filter(|mark| !open.contains(mark)).collect();
                if !new.is_empty() {
                    failures.push(format!("{name} {host} {target}: {new:?}, not {of_nginx:?}"));
                }
            }
        }
        weft.stop();
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // The servers have most responses in common, so that the comparison has a meaning.
    assert!(shared > 1_000, "{shared}");
}
