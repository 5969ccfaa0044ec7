//! Commands for external programs.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{LONG_PATIENCE, PATIENCE, Program, ProgramOutput, Signal, report_missing_tool, until};

/// Runs a program until it exits and asserts that it succeeds.
#[track_caller]
pub fn run_successfully(command: &mut Command) -> ProgramOutput {
    let output = Program::start(command).wait_with_timeout(LONG_PATIENCE);
    assert_eq!(output.status, Ok(0), "{command:?}: {}{}", output.stdout, output.stderr);
    output
}

/// Returns a command that runs a program with the maximum number of file descriptors.
pub fn with_max_descriptors(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -n "$(ulimit -Hn)"; exec "$0" "$@""#]).arg(program);
    command
}

/// Loads a page in a headless browser. Stdout is the document after all scripts have run, stderr
/// the log of the browser.
#[track_caller]
pub fn browse(url: &str) -> ProgramOutput {
    browse_with(&[], url)
}

#[track_caller]
pub fn browse_with(options: &[&str], url: &str) -> ProgramOutput {
    let profile = tempfile::tempdir().unwrap();
    run_successfully(chromium(profile.path()).args(options).args(["--dump-dom", url]))
}

/// Returns the command for a headless browser that logs console messages of pages to stderr.
pub fn chromium(profile: &Path) -> Command {
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
    command.args(["--no-first-run", "--disable-background-networking"]);
    command.args(["--disable-component-update", "--disable-sync"]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.args(["--enable-logging=stderr", "--v=0"]);
    command
}

/// Returns the console messages of the page and of the browser about it.
pub fn console_lines(output: &ProgramOutput) -> Vec<&str> {
    output.stderr.lines().filter(|line| line.contains("CONSOLE")).collect()
}

/// Returns the first heading of a page, with its start tag.
pub fn first_heading(page: &str) -> &str {
    let end = page.find("</h1>").expect("a heading");
    &page[page.find("<h1").expect("a heading")..end]
}

/// Returns the command for `curl`, silent except for errors, and without a proxy.
pub fn curl() -> Command {
    let mut command = Command::new("curl");
    command.args(["--disable", "--silent", "--show-error", "--noproxy", "*"]);
    command
}

/// Runs curl with HTTP/1.1 and with HTTP/2, and returns the result of `read`, the same for both.
#[track_caller]
pub fn with_each_version(
    options: &[&str],
    url: &str,
    read: impl Fn(ProgramOutput) -> String,
) -> String {
    let [first, second] = ["--http1.1", "--http2-prior-knowledge"]
        .map(|version| read(run_successfully(curl().arg(version).args(options).arg(url))));
    assert_eq!(first, second, "{url} {options:?}");
    first
}

/// Returns the values of the fields with this name in a response, joined by `|`.
#[track_caller]
pub fn fields_with_each_version(url: &str, name: &str) -> String {
    with_each_version(&["-D", "-", "-o", "/dev/null"], url, |output| {
        let fields = output.stdout.lines().filter_map(|line| line.split_once(": "));
        let named = fields.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value).collect::<Vec<_>>().join("|")
    })
}

/// Returns bytes whose period is no power of two.
pub fn pattern(length: usize) -> Vec<u8> {
    // Tests are not optimized: a call for each byte of some megabytes takes a second.
    let period: Vec<u8> = (0..251).collect();
    let mut bytes = period.repeat(length.div_ceil(period.len()));
    bytes.truncate(length);
    bytes
}

/// Returns a text that compresses well, but takes noticeable CPU time to compress.
pub fn words(length: usize) -> String {
    let mut text = String::with_capacity(length + 32);
    for n in 0_u32.. {
        if text.len() >= length {
            break;
        }
        write!(text, "{} words, ", n.wrapping_mul(n)).expect("a string is writable");
    }
    text.truncate(length);
    text
}

/// Returns a loopback address of this process only, so that no other test takes its ports. Tests
/// that run at the same time differ in `number`.
pub fn own_address(number: u8, port: u16) -> SocketAddr {
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    (Ipv4Addr::new(127, 1 + high % 254, low, number), port).into()
}

/// Starts nginx with the file `nginx.conf` of a directory, and waits until it accepts connections.
#[track_caller]
pub fn start_nginx(folder: &Path, address: SocketAddr) -> Program {
    let mut nginx = Command::new("nginx");
    nginx.arg("-c").arg(folder.join("nginx.conf")).args(["-e", "stderr"]);
    start_server(&mut nginx, address)
}

/// Directives for temporary files of nginx in a directory.
pub fn nginx_temp_paths(folder: &Path) -> String {
    let at = folder.display();
    format!(
        "client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; \
         uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n"
    )
}

/// Starts Caddy with the file `Caddyfile` of a directory, and waits until it accepts connections.
#[track_caller]
pub fn start_caddy(folder: &Path, address: SocketAddr) -> Program {
    let mut caddy = Command::new("caddy");
    caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(folder.join("Caddyfile"));
    start_server(caddy.env("HOME", folder).env("XDG_DATA_HOME", folder), address)
}

/// PHP-FPM with two processes, which listens on a socket.
pub struct PhpFpm {
    program: Program,
    pub socket: PathBuf,
}

impl PhpFpm {
    /// Starts PHP-FPM with a socket in a directory; `None` if it is not installed.
    #[track_caller]
    pub fn start(folder: &Path) -> Option<PhpFpm> {
        let Some(program) = php_fpm() else {
            report_missing_tool("php-fpm");
            return None;
        };
        let socket = folder.join("php-fpm.sock");
        let config = folder.join("php-fpm.conf");
        let text = format!(
            "[global]\ndaemonize = no\nerror_log = /dev/stderr\n\
             [test]\nlisten = {}\npm = static\npm.max_children = 2\n",
            socket.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new(program);
        // Without the configuration of the system; root may run scripts as root.
        command.args(["-n", "-R", "-F", "-d", "log_errors=1", "-d", "display_errors=0", "-y"]);
        let program = Program::start(command.arg(&config));
        // The socket has a name before it listens.
        until("PHP-FPM listens", || UnixStream::connect(&socket).is_ok());
        Some(PhpFpm { program, socket })
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        // The processes that run the scripts end with the master only if it can end them.
        self.program.signal(Signal::TERM);
        let start = Instant::now();
        while self.program.is_running() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns the program of PHP-FPM, whose name has a version on some systems.
fn php_fpm() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let entries = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.find(|path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"php-fpm"))
    })
}

#[track_caller]
fn start_server(command: &mut Command, address: SocketAddr) -> Program {
    let mut program = Program::start(command);
    until("the server accepts connections", || {
        assert!(program.is_running(), "{command:?}: {}", program.stderr());
        TcpStream::connect(address).is_ok()
    });
    program
}
