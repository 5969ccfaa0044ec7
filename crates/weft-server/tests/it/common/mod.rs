//! Helpers shared by the tests: child processes, and a client that sends and receives raw bytes.

pub mod external;
pub mod http3;
pub mod proxy;
pub mod random;
pub mod tls_client;
pub mod traced;

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, kill_process};
use tokio::net::TcpSocket;

pub use rustix::process::Signal;

/// Timeout for an event that must happen, long enough for a heavily loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// True if `weft reload` reaches a server on this system.
pub const HAS_CONTROL_SOCKET: bool = cfg!(all(target_os = "linux", not(weft_portable)));

/// Like [`PATIENCE`], for programs with a large workload.
pub const LONG_PATIENCE: Duration = Duration::from_secs(300);

/// Polls `condition` until it is true; panics with `description` after [`PATIENCE`]. The pauses
/// grow from 5 to 25 ms, because a condition may be a request, or start a process.
#[track_caller]
pub fn until(description: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "timed out waiting until {description}");
        let pause = Duration::from_millis(5) + start.elapsed() / 40;
        std::thread::sleep(pause.min(Duration::from_millis(25)));
    }
}

/// Held while this process has descriptors that every child process inherits, and while a test
/// starts a child process that must not inherit them.
pub static INHERITABLE_DESCRIPTORS: Mutex<()> = Mutex::new(());

/// Held by tests that open at least 1,000 connections, so that they do not run at the same time:
/// one of them opens 15,000, and a process may have 20,000 descriptors on some machines.
pub static MANY_DESCRIPTORS: Mutex<()> = Mutex::new(());

/// Returns the path of a directory or file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Connects from this loopback address, so that connections count as from several clients.
pub fn connect_from(address: impl Into<IpAddr>, to: SocketAddr) -> TcpStream {
    // Child processes of concurrent tests must not inherit the socket.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let socket = socket.expect("a socket");
    let from = SocketAddr::new(address.into(), 0);
    rustix::net::bind(&socket, &from).expect("a loopback address");
    rustix::net::connect(&socket, &to).expect("a connection");
    TcpStream::from(socket)
}

/// Returns an address without a listener. The port stays bound for the rest of the test run,
/// because another test could bind a port that is merely free.
pub fn unused_address() -> SocketAddr {
    let reserved = TcpSocket::new_v4().unwrap();
    reserved.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = reserved.local_addr().unwrap();
    std::mem::forget(reserved);
    address
}

// -- programs

/// Reports that a test was skipped. The test harness captures the `print!` macros of a passing
/// test, but not direct writes to stderr.
pub fn report_skipped(reason: &str) {
    std::io::stderr()
        .write_all(format!("SKIPPED: {reason}\n").as_bytes())
        .expect("stderr is writable");
}

/// Returns true if an external program is in the `PATH`. Otherwise the test is reported as skipped
/// and passes; with `WEFT_REQUIRE_TOOLS=1` in the environment it fails instead.
#[track_caller]
pub fn has_tool(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_installed = env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !is_installed {
        report_missing_tool(name);
    }
    is_installed
}

/// Reports that a tool is not installed; see [`has_tool`].
#[track_caller]
pub fn report_missing_tool(name: &str) {
    let required = env::var_os("WEFT_REQUIRE_TOOLS").is_some_and(|value| value == "1");
    assert!(!required, "{name} is not installed, and WEFT_REQUIRE_TOOLS=1");
    report_skipped(&format!("{name} is not installed"));
}

/// A running child process with captured output; killed on drop.
pub struct Program {
    child: Child,
    stdout: CapturedPipe,
    stderr: CapturedPipe,
}

/// Exit status and output of a child process.
#[derive(Debug)]
pub struct ProgramOutput {
    /// The exit code, or as `Err` the signal that terminated the process.
    pub status: Result<i32, i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Program {
    #[track_caller]
    pub fn start(command: &mut Command) -> Program {
        Program::spawn(Stdio::null(), command, Stdio::piped())
    }

    /// Starts the program with a file as its standard input.
    #[track_caller]
    pub fn start_with_stdin(command: &mut Command, stdin: File) -> Program {
        Program::spawn(stdin.into(), command, Stdio::piped())
    }

    #[track_caller]
    fn spawn(stdin: Stdio, command: &mut Command, stdout: Stdio) -> Program {
        let command = command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = child.stdout.take().map(CapturedPipe::start).unwrap_or_default();
        let stderr = CapturedPipe::start(child.stderr.take().expect("stderr is piped"));
        Program { child, stdout, stderr }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is our child");
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the process is our child").is_none()
    }

    /// Returns the output to stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Returns the output to stderr so far, with messages as on a terminal.
    pub fn stderr(&self) -> String {
        without_times(&self.stderr.text())
    }

    /// Waits for the process to exit, but not for other processes that write to the same pipes.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        until("the program exits", || !self.is_running());
        self.child.wait().expect("the process is our child")
    }

    /// Waits for the process to exit and for the end of its output.
    #[track_caller]
    pub fn wait_with_output(self) -> ProgramOutput {
        self.wait_with_timeout(PATIENCE)
    }

    #[track_caller]
    pub fn wait_with_timeout(mut self, timeout: Duration) -> ProgramOutput {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the process is our child") {
                break status;
            }
            let output = || format!("{}{}", self.stdout(), self.stderr());
            assert!(start.elapsed() < timeout, "the program does not exit: {}", output());
            std::thread::sleep(Duration::from_millis(5));
        };
        let status = status.code().ok_or_else(|| status.signal().expect("a code or a signal"));
        ProgramOutput {
            status,
            stdout: self.stdout.finish(),
            stderr: without_times(&self.stderr.finish()),
        }
    }
}

/// Warning of a server that root starts, as tests in a container do.
pub const OF_ROOT: &str = "the server runs as root, and so do its scripts";

/// Replaces time and level of the messages of `weft` by the name of the program, as on a terminal.
/// Omits the warning of a server that root starts.
fn without_times(text: &str) -> String {
    let line = |line: &str| {
        let message =
            line.split_once("Z ").filter(|(time, _)| is_time(time)).and_then(|(_, rest)| {
                let levels = ["error: ", "warn: ", "info: ", "debug: "];
                levels.iter().find_map(|level| rest.strip_prefix(level))
            });
        message.map_or_else(|| line.to_owned(), |message| format!("weft: {message}"))
    };
    let lines = text.split_inclusive('\n').filter(|line| !line.contains(OF_ROOT));
    lines.map(line).collect()
}

/// Returns true for a time such as `1994-11-06T08:49:37.012`.
fn is_time(text: &str) -> bool {
    let shape = "0000-00-00T00:00:00.000";
    text.len() == shape.len()
        && text.bytes().zip(shape.bytes()).all(|(byte, expected)| match expected {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        })
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Output of a program. A thread reads it continuously, so that the program never blocks on a full
/// pipe.
#[derive(Default)]
struct CapturedPipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl CapturedPipe {
    fn start(mut pipe: impl Read + Send + 'static) -> CapturedPipe {
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let captured = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                captured.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        CapturedPipe { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes.lock().unwrap().clone()).expect("programs write UTF-8")
    }

    /// Reads the pipe to its end and returns the whole output.
    fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader thread does not panic");
        }
        self.text()
    }
}

// -- the program `weft`

/// A running `weft` server process.
pub struct Weft {
    program: Program,
    /// Notice logged at startup, with the listen addresses and the number of workers.
    pub announcement: String,
}

/// Returns the command for `weft` with these arguments.
pub fn weft<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(arguments);
    command
}

/// Runs `weft` until it exits.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> ProgramOutput {
    Program::start(&mut weft(arguments)).wait_with_output()
}

impl Weft {
    /// Serves a directory on a port that the kernel assigns.
    #[track_caller]
    pub fn serve(folder: &Path, options: &[&str]) -> Weft {
        Weft::start(weft([folder]).args(["--listen", "127.0.0.1:0"]).args(options))
    }

    /// Starts the server and waits for its startup notice.
    #[track_caller]
    pub fn start(command: &mut Command) -> Weft {
        Weft::from_program(Program::start(command))
    }

    /// Starts the server with a pipe as its access log. The pipe fills up: it is not read before
    /// [`read_log`](Weft::read_log).
    #[track_caller]
    pub fn start_with_unread_log(mut command: Command) -> (Weft, PipeReader) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (Weft::from_program(Program::spawn(Stdio::null(), &mut command, writer.into())), reader)
    }

    /// Starts to read the access log from its pipe.
    pub fn read_log(&mut self, reader: PipeReader) {
        self.program.stdout = CapturedPipe::start(reader);
    }

    /// Waits for the startup notice of a server process.
    #[track_caller]
    pub fn from_program(mut program: Program) -> Weft {
        // Warnings may precede the notice. With an error log of its own, a server has no notice on
        // standard error.
        let start = Instant::now();
        until("the server logs its startup notice", || {
            let stderr = program.stderr();
            assert!(program.is_running(), "the server exited: {stderr}");
            let is_late = || start.elapsed() > Duration::from_secs(1);
            stderr.ends_with('\n') && (stderr.contains("serving ") || is_late())
        });
        let announcement = program.stderr();
        Weft { program, announcement }
    }

    pub fn id(&self) -> u32 {
        self.program.id()
    }

    /// Returns the output to stdout so far: by default the access log.
    pub fn stdout(&self) -> String {
        self.program.stdout()
    }

    /// Returns the output to stderr so far.
    pub fn stderr(&self) -> String {
        self.program.stderr()
    }

    /// Returns the listen addresses of the startup notice.
    #[track_caller]
    pub fn addresses(&self) -> Vec<String> {
        // Warnings may follow the notice.
        let mut lines = self.announcement.lines();
        let notice = lines.find(|line| line.contains("serving ")).expect("the startup notice");
        let (_, rest) = notice.rsplit_once(" on ").expect("listen addresses");
        let (addresses, _) = rest.rsplit_once(" with ").expect("a number of workers");
        addresses.split(' ').map(str::to_owned).collect()
    }

    /// Returns the first TCP address without TLS.
    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        self.first_address("http://")
    }

    /// Returns the first address with TLS.
    #[track_caller]
    pub fn tls_address(&self) -> SocketAddr {
        self.first_address("https://")
    }

    #[track_caller]
    fn first_address(&self, scheme: &str) -> SocketAddr {
        let addresses = self.addresses();
        let found = addresses.iter().find_map(|address| address.strip_prefix(scheme));
        found.expect("an address with this scheme").parse().expect("an address")
    }

    /// Returns the address of the status endpoint in the startup notice.
    #[track_caller]
    pub fn status_address(&self) -> SocketAddr {
        // Warnings may follow the notice.
        let mut lines = self.announcement.lines();
        let address = lines.find_map(|line| line.split_once("status at http://"));
        address.expect("a status endpoint").1.parse().expect("an address")
    }

    pub fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.address())
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        Client::tcp(self.address())
    }

    pub fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    pub fn is_running(&mut self) -> bool {
        self.program.is_running()
    }

    /// Waits for the process to exit, but not for its successors after an upgrade.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.program.wait()
    }

    #[track_caller]
    pub fn wait_with_output(self) -> ProgramOutput {
        self.program.wait_with_output()
    }

    /// Stops the server with SIGTERM, like a service manager, and asserts that it exits with 0.
    #[track_caller]
    pub fn stop(self) -> ProgramOutput {
        self.signal(Signal::TERM);
        let output = self.wait_with_output();
        assert_eq!(output.status, Ok(0), "{}", output.stderr);
        output
    }
}

// -- an upstream

/// Starts an upstream server that calls `handler` in a new thread for each connection, with the
/// number of the connection, starting at 0.
pub fn raw_upstream(handler: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let handler = Arc::new(handler);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (handler, stream) = (handler.clone(), stream.unwrap());
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            std::thread::spawn(move || handler(number, stream));
        }
    });
    address
}

/// Reads a message head; `None` at the end of the connection.
pub fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}

// -- the client

/// A received response. All responses of `weft` to requests for files have a `Content-Length`.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// Status line and field lines.
    pub head: Vec<String>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// Removes the first `length` bytes and returns them. `drain` with `collect` would call functions
/// for each byte, because tests are not optimized.
pub fn take_front(bytes: &mut Vec<u8>, length: usize) -> Vec<u8> {
    let rest = bytes.split_off(length);
    std::mem::replace(bytes, rest)
}

trait Stream: Read + Write + AsFd {}
impl<T: Read + Write + AsFd> Stream for T {}

/// Lets the kernel reset a TCP connection when the socket is closed.
pub fn reset_on_close(socket: impl AsFd) {
    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
}

/// A client that sends exactly the bytes it is given.
pub struct Client {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
}

impl Client {
    #[track_caller]
    pub fn tcp(address: SocketAddr) -> Client {
        Client::from_stream(TcpStream::connect(address).expect("a connection"))
    }

    /// Creates a client on an existing connection.
    pub fn from_stream(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream: Box::new(stream), received: Vec::new() }
    }

    #[track_caller]
    pub fn unix(path: &Path) -> Client {
        let stream = UnixStream::connect(path).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream: Box::new(stream), received: Vec::new() }
    }

    /// Resets the connection: the server can tell from the end of the input alone that the client
    /// sends no more, but not that it has left.
    pub fn leave(self) {
        reset_on_close(&self.stream);
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the connection is open");
    }

    /// Sends a GET request and reads the response.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.response()
    }

    /// Reads the next message head and returns its lines.
    #[track_caller]
    pub fn head(&mut self) -> Vec<String> {
        let end = loop {
            match self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(end) => break end,
                None => assert!(self.read() > 0, "truncated: {}", self.received.escape_ascii()),
            }
        };
        let head = take_front(&mut self.received, end + 4);
        let head = String::from_utf8(head).expect("a head in UTF-8");
        head.trim_end().split("\r\n").map(str::to_owned).collect()
    }

    /// Reads the next response.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        let head = self.head();
        let status = head[0].split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        let mut response = Response { status, head, body: Vec::new() };
        let length = response.header("content-length").expect("a length");
        let length: usize = length.parse().expect("a number");
        response.body = self.body(length);
        response
    }

    /// Reads the next `length` bytes.
    #[track_caller]
    pub fn body(&mut self, length: usize) -> Vec<u8> {
        while self.received.len() < length {
            assert!(self.read() > 0, "truncated after {} of {length}", self.received.len());
        }
        take_front(&mut self.received, length)
    }

    /// Reads to the end of the connection and asserts that no more bytes are received.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        while self.read() > 0 {}
        assert_eq!(self.received.escape_ascii().to_string(), "", "data before the end");
    }

    /// Reads once and returns the number of bytes; 0 is the end of the connection.
    #[track_caller]
    fn read(&mut self) -> usize {
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(n) => {
                self.received.extend_from_slice(&buffer[..n]);
                n
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            // The kernel does not restart an interrupted read on a socket with a timeout
            // (signal(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => self.read(),
            Err(error) => panic!("{error}, after {}", self.received.escape_ascii()),
        }
    }
}
