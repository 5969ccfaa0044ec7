//! What the tests share: programs as children, and a client that speaks bytes.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod outside;

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, kill_process};
use tokio::net::TcpSocket;

pub use rustix::process::Signal;

/// How long a test waits for what must come: not to be met, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The same for a program that has much to do.
pub const LONG_PATIENCE: Duration = Duration::from_secs(300);

/// Waits until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder or a file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// An address where nobody listens, nor will while these tests run: a port that was only free could
/// be another test's a moment later.
pub fn nobody() -> SocketAddr {
    let holder = TcpSocket::new_v4().unwrap();
    holder.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = holder.local_addr().unwrap();
    std::mem::forget(holder);
    address
}

// -- programs

/// Says loudly that a test was skipped. The test harness hides what a test that passes
/// prints, but not what it writes.
pub fn skipped(why: &str) {
    std::io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes()).expect("stderr is there");
}

/// Whether an outside program is installed. If it is not, the test that needs it says so
/// and passes; with `WEFT_REQUIRE_TOOLS=1` in the environment it fails instead.
#[track_caller]
pub fn tool(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !is_there {
        missing(name);
    }
    is_there
}

/// Says of a tool that it is not installed; see [`tool`].
#[track_caller]
pub fn missing(name: &str) {
    let required = env::var_os("WEFT_REQUIRE_TOOLS").is_some_and(|value| value == "1");
    assert!(!required, "{name} is not installed, and WEFT_REQUIRE_TOOLS=1");
    skipped(&format!("{name} is not installed"));
}

/// A program that runs; it is killed with the value.
pub struct Program {
    child: Child,
    stdout: Output,
    stderr: Output,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// `Err` is the signal that ended it.
    pub status: Result<i32, i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Program {
    #[track_caller]
    pub fn start(command: &mut Command) -> Program {
        Program::between(Stdio::null(), command, Stdio::piped())
    }

    /// One that is told what the file says.
    #[track_caller]
    pub fn told(command: &mut Command, stdin: File) -> Program {
        Program::between(stdin.into(), command, Stdio::piped())
    }

    #[track_caller]
    fn between(stdin: Stdio, command: &mut Command, stdout: Stdio) -> Program {
        let command = command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = child.stdout.take().map(Output::of).unwrap_or_default();
        let stderr = Output::of(child.stderr.take().expect("it is piped"));
        Program { child, stdout, stderr }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the child is ours");
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the child is ours").is_none()
    }

    /// What it has written to stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits for its end, but not for that of others who write to the same pipes.
    #[track_caller]
    pub fn status(&mut self) -> ExitStatus {
        until("it ends", || !self.is_running());
        self.child.wait().expect("the child is ours")
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(self) -> Ended {
        self.end_within(PATIENCE)
    }

    #[track_caller]
    pub fn end_within(mut self, patience: Duration) -> Ended {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                break status;
            }
            let said = || format!("{}{}", self.stdout(), self.stderr());
            assert!(start.elapsed() < patience, "it does not end: {}", said());
            std::thread::sleep(Duration::from_millis(5));
        };
        let status = status.code().ok_or_else(|| status.signal().expect("a code or a signal"));
        Ended { status, stdout: self.stdout.rest(), stderr: self.stderr.rest() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program writes, taken at once so that it never has to wait.
#[derive(Default)]
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn of(mut pipe: impl Read + Send + 'static) -> Output {
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let taken = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                taken.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Output { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes.lock().unwrap().clone()).expect("programs write UTF-8")
    }

    /// All of it, after the end.
    fn rest(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the pipe is read");
        }
        self.text()
    }
}

// -- the program `weft`

/// The program `weft` while it serves.
pub struct Weft {
    program: Program,
    /// The line that it began with.
    pub announcement: String,
}

/// `weft` with these arguments.
pub fn weft<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(arguments);
    command
}

/// Runs `weft` to its end.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    Program::start(&mut weft(arguments)).end()
}

impl Weft {
    /// Serves a folder on a port that the system chose.
    #[track_caller]
    pub fn serve(folder: &Path, more: &[&str]) -> Weft {
        Weft::start(weft([folder]).args(["--listen", "127.0.0.1:0"]).args(more))
    }

    /// Starts it, and waits until it has said where it listens.
    #[track_caller]
    pub fn start(command: &mut Command) -> Weft {
        Weft::announced(Program::start(command))
    }

    /// The same with a pipe for its log, which is full after a while: nobody reads it
    /// before [`read_log`](Weft::read_log).
    #[track_caller]
    pub fn start_unread(mut command: Command) -> (Weft, PipeReader) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (Weft::announced(Program::between(Stdio::null(), &mut command, writer.into())), reader)
    }

    /// From now on the log is read.
    pub fn read_log(&mut self, reader: PipeReader) {
        self.program.stdout = Output::of(reader);
    }

    /// Waits until it has said where it listens.
    #[track_caller]
    pub fn announced(mut program: Program) -> Weft {
        until("it says where it listens", || {
            assert!(program.is_running(), "it ended: {}", program.stderr());
            program.stderr().ends_with('\n')
        });
        let announcement = program.stderr();
        Weft { program, announcement }
    }

    pub fn id(&self) -> u32 {
        self.program.id()
    }

    /// What it has logged so far.
    pub fn stdout(&self) -> String {
        self.program.stdout()
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        self.program.stderr()
    }

    /// The addresses that it has announced.
    #[track_caller]
    pub fn addresses(&self) -> Vec<String> {
        let (_, rest) = self.announcement.rsplit_once(" on ").expect("on what");
        let (addresses, _) = rest.rsplit_once(" with ").expect("with how many workers");
        addresses.split(' ').map(str::to_owned).collect()
    }

    /// The first of its TCP addresses.
    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        self.first_with("http://")
    }

    /// The first of its addresses with TLS.
    #[track_caller]
    pub fn tls_address(&self) -> SocketAddr {
        self.first_with("https://")
    }

    #[track_caller]
    fn first_with(&self, scheme: &str) -> SocketAddr {
        let addresses = self.addresses();
        let found = addresses.iter().find_map(|address| address.strip_prefix(scheme));
        found.expect("such an address").parse().expect("an address")
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

    /// Waits for its end, but not for that of those who follow it.
    #[track_caller]
    pub fn status(&mut self) -> ExitStatus {
        self.program.status()
    }

    #[track_caller]
    pub fn end(self) -> Ended {
        self.program.end()
    }

    /// Stops it as a service manager does.
    #[track_caller]
    pub fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        let ended = self.end();
        assert_eq!(ended.status, Ok(0), "{}", ended.stderr);
        ended
    }
}

// -- an upstream

/// An upstream that is a function from a connection, and its number, to nothing.
pub fn raw(script: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (script, stream) = (script.clone(), stream.unwrap());
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            std::thread::spawn(move || script(number, stream));
        }
    });
    address
}

/// Reads a head; `None` at the end of the connection.
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

/// A response as a client sees it. Those of `weft` to requests for files all have a length.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// The lines of the head.
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

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A client that says exactly what it is told to.
pub struct Client {
    stream: Box<dyn Stream>,
    came: Vec<u8>,
}

impl Client {
    #[track_caller]
    pub fn tcp(address: SocketAddr) -> Client {
        Client::over(TcpStream::connect(address).expect("a connection"))
    }

    /// A client on a connection that was made in some other way.
    pub fn over(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream: Box::new(stream), came: Vec::new() }
    }

    #[track_caller]
    pub fn unix(path: &Path) -> Client {
        let stream = UnixStream::connect(path).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream: Box::new(stream), came: Vec::new() }
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server takes it");
    }

    /// Asks, and reads the answer.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.response()
    }

    /// The lines of the next head.
    #[track_caller]
    pub fn head(&mut self) -> Vec<String> {
        let end = loop {
            match self.came.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(end) => break end,
                None => assert!(self.read() > 0, "cut: {}", self.came.escape_ascii()),
            }
        };
        let head: Vec<u8> = self.came.drain(..end + 4).collect();
        let head = String::from_utf8(head).expect("a head is text");
        head.trim_end().split("\r\n").map(str::to_owned).collect()
    }

    /// The next response.
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

    /// The next bytes.
    #[track_caller]
    pub fn body(&mut self, length: usize) -> Vec<u8> {
        while self.came.len() < length {
            assert!(self.read() > 0, "cut after {} of {length}", self.came.len());
        }
        self.came.drain(..length).collect()
    }

    /// Reads to the end; nothing more must come.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        while self.read() > 0 {}
        assert_eq!(self.came.escape_ascii().to_string(), "", "something came before the end");
    }

    /// Reads once more; 0 is the end.
    #[track_caller]
    fn read(&mut self) -> usize {
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(n) => {
                self.came.extend_from_slice(&buffer[..n]);
                n
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            // A read with a timeout is not begun anew by the system.
            Err(error) if error.kind() == ErrorKind::Interrupted => self.read(),
            Err(error) => panic!("{error}, after {}", self.came.escape_ascii()),
        }
    }
}
