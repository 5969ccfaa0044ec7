//! Instruction counts of the engine: `cargo run --release -p weft-instructions`.
//!
//! The program starts itself under callgrind, with few and with many repetitions of each workload,
//! and divides the difference: this excludes the cost of start-up, and the load of the machine has
//! no effect. The counts are compared with `instructions.txt`; `-- --save` updates it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower_service::Service;
use weft::files::{Directory, DirectorySettings};
use weft::header::HeaderValue;
use weft::message::Version;
use weft::middleware::{
    Canonical, CatchPanic, CleanPath, Compress, ConcurrencyLimit, Cors, ETag, Health, Log,
    RateLimit, RequestIds, SecurityHeaders, Timeout,
};
use weft::{Application, Body, Middleware, Next, Request, Response, Server, StatusCode};
use weft_proto::Headers;
use weft_proto::http1::compose::{self, FieldSources, HeadPrefix, ResponseHead};
use weft_proto::http1::framing::ResponseFraming;
use weft_proto::http1::parse::{Limits, ParsedHead};
use weft_proto::semantics::accept;
use weft_proto::semantics::coding::Coding;

/// Increase over the baseline, in percent, that counts as a regression. Compilers differ slightly.
const TOLERANCE: u64 = 10;

const MINIMAL: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n";

/// The request of picohttpparser's benchmark: a browser of 2010.
const CLASSIC: &[u8] = b"GET /blog/uploads/2010/03/a-kitten-in-a-black-helmet-pink.jpg HTTP/1.1\r\n\
    Host: www.kitten-pictures.example\r\n\
    User-Agent: Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10.6; ja-JP-mac; rv:1.9.2.3) Gecko/20100401 Firefox/3.6.3 Plugin/0.9\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: ja,en-us;q=0.7,en;q=0.3\r\n\
    Accept-Encoding: gzip,deflate\r\n\
    Accept-Charset: Shift_JIS,utf-8;q=0.7,*;q=0.7\r\n\
    Keep-Alive: 115\r\n\
    Connection: keep-alive\r\n\
    Cookie: blog_seen_visits=2; blog_seen_last=xxxxxxxxxx; __utma=xxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.x; __utmz=xxxxxxxxx.xxxxxxxxxx.x.x.utmccn=(referral)|utmcsr=reader.example|utmcct=/reader/|utmcmd=referral\r\n\r\n";

/// Requests of a current browser. No two are alike: they differ in query, referrer and cookie. All
/// exist before the first one is used, so that their number does not change the cost of a request.
static BROWSER: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..MANY as u32).map(browser).collect());

fn browser(number: u32) -> Vec<u8> {
    // Spreads the digits of consecutive numbers.
    let id = number.wrapping_mul(0x9E37_79B1);
    format!(
        "GET /?id={id:08x} HTTP/1.1\r\n\
         Host: localhost:8080\r\n\
         Connection: keep-alive\r\n\
         sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\n\
         sec-ch-ua-mobile: ?0\r\n\
         sec-ch-ua-platform: \"Linux\"\r\n\
         Upgrade-Insecure-Requests: 1\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n\
         Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n\
         Sec-Fetch-Site: same-origin\r\n\
         Sec-Fetch-Mode: navigate\r\n\
         Sec-Fetch-User: ?1\r\n\
         Sec-Fetch-Dest: document\r\n\
         Referer: http://localhost:8080/list?page={id:08x}\r\n\
         Accept-Encoding: gzip, deflate, br, zstd\r\n\
         Accept-Language: en-GB,en;q=0.9\r\n\
         Cookie: session={id:08x}; theme=dark\r\n\r\n"
    )
    .into_bytes()
}

/// Numbers of repetitions. The workloads of browsers have as many heads.
const FEW: u64 = 100;
const MANY: u64 = 1_100;

type Workload = (&'static str, fn(usize));

const WORKLOADS: &[Workload] = &[
    ("parse minimal", |n| parse(n, &[MINIMAL])),
    ("parse classic", |n| parse(n, &[CLASSIC])),
    ("parse browser", |n| parse(n, &BROWSER)),
    ("httparse minimal", |n| with_httparse(n, &[MINIMAL])),
    ("httparse classic", |n| with_httparse(n, &[CLASSIC])),
    ("httparse browser", |n| with_httparse(n, &BROWSER)),
    ("trickle of 1 KB", |n| trickle(n / 10, 1_000)),
    ("trickle of 10 KB", |n| trickle(n / 10, 10_000)),
    ("negotiate", |n| negotiate(n, 0)),
    ("negotiate 16 KB", |n| negotiate(n, 16_000)),
    ("compose", compose),
    ("exchange minimal", |n| exchange(n, hello, &[MINIMAL])),
    ("exchange browser", |n| exchange(n, hello, &BROWSER)),
    ("file minimal", |n| exchange(n, site(), &[MINIMAL])),
    ("file browser", |n| exchange(n, site(), &BROWSER)),
    ("file compressed", |n| exchange(n, compressed_site(), &BROWSER)),
    ("tower minimal", |n| exchange(n, weft::tower::app(HelloService), &[MINIMAL])),
    ("tower browser", |n| exchange(n, weft::tower::app(HelloService), &BROWSER)),
    // The cost of each middleware, in comparison with `exchange browser`.
    ("with a function", |n| exchange(n, hello.wrap(function), &BROWSER)),
    ("with Canonical", |n| with_middleware(n, Canonical::new().host("localhost:8080"))),
    ("with CatchPanic", |n| with_middleware(n, CatchPanic::new())),
    ("with CleanPath", |n| with_middleware(n, CleanPath::new())),
    ("with Compress", |n| with_middleware(n, Compress::new())),
    ("with ConcurrencyLimit", |n| with_middleware(n, ConcurrencyLimit::new(1_000))),
    ("with Cors", |n| with_middleware(n, Cors::new())),
    ("with ETag", |n| with_middleware(n, ETag::new())),
    ("with Health", |n| with_middleware(n, Health::new("/healthz"))),
    ("with Log", |n| with_middleware(n, Log::new(|line| assert!(!black_box(line).is_empty())))),
    ("with RateLimit", |n| with_middleware(n, RateLimit::new(u32::MAX, Duration::from_secs(1)))),
    ("with RequestIds", |n| with_middleware(n, RequestIds::new())),
    ("with SecurityHeaders", |n| with_middleware(n, SecurityHeaders::new())),
    ("with Timeout", |n| with_middleware(n, Timeout::new(Duration::from_secs(10)))),
];

const LIMITS: Limits = Limits { request_line: 8_192, head: 16_384, fields: 100 };

/// Returns this number of heads, one after the other.
fn repeat<T: AsRef<[u8]>>(times: usize, heads: &[T]) -> impl Iterator<Item = &[u8]> {
    heads.iter().cycle().take(times).map(AsRef::as_ref)
}

fn parse(times: usize, heads: &[impl AsRef<[u8]>]) {
    for input in repeat(times, heads) {
        black_box(parse_in_pieces(black_box(input), [input.len()]).unwrap());
    }
}

/// Parses one head that arrives in pieces, which end at the positions `ends`. Returns its length
/// and the number of its fields if it is complete.
fn parse_in_pieces(input: &[u8], ends: impl IntoIterator<Item = usize>) -> Option<(usize, usize)> {
    let mut head = ParsedHead::new();
    for end in ends {
        if let Some(length) = head.read(&input[..end], &LIMITS).unwrap() {
            return Some((length, head.fields.len()));
        }
    }
    None
}

fn with_httparse(times: usize, heads: &[impl AsRef<[u8]>]) {
    for input in repeat(times, heads) {
        let mut fields = [httparse::EMPTY_HEADER; 24];
        let mut request = httparse::Request::new(&mut fields);
        assert!(request.parse(black_box(input)).unwrap().is_complete());
        black_box(&request);
    }
}

/// Parses a head with one long field that arrives byte by byte: ten times the length must need
/// about ten times the instructions.
fn trickle(times: usize, length: usize) {
    let input = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {}\r\n\r\n", "x".repeat(length));
    for _ in 0..times {
        let ends = 1..=input.len();
        black_box(parse_in_pieces(black_box(input.as_bytes()), ends).unwrap());
    }
}

/// Negotiates the representation of a page for a browser whose fields have this many more bytes:
/// HTTP/2 sends them by reference, so they must not cost much more.
fn negotiate(times: usize, bytes: usize) {
    let filler = |member: &str| member.repeat(bytes / 3 / member.len());
    let headers = Headers::parse(format!(
        "Accept: text/html,*/*;q=0.8{}\r\nAccept-Encoding: gzip, deflate, br{}\r\n\
         Accept-Language: en-GB,en;q=0.9{}\r\n\r\n",
        filler(",a/b;q=0.1"),
        filler(", x;q=0.1"),
        filler(",fr-CH;q=0.1"),
    ))
    .unwrap();
    let languages = ["en", "de", "fr", "ja"].map(str::to_owned);
    for _ in 0..times {
        let headers = black_box(&headers);
        black_box(accept::prefers(headers, "application/json", "text/html"));
        black_box(accept::coding(headers, &Coding::ALL));
        black_box(accept::language(headers, &languages));
    }
}

/// Composes the head of a typical response.
fn compose(times: usize) {
    static HEAD_PREFIX: LazyLock<HeadPrefix> =
        LazyLock::new(|| HeadPrefix::new(Some(&HeaderValue::from_static("weft"))));
    let mut out = Vec::new();
    for _ in 0..times {
        out.clear();
        let head = ResponseHead {
            version: Version::HTTP_11,
            status: StatusCode::OK,
            fields: FieldSources {
                forwarded: None,
                list: &[],
                lines: b"content-type: text/plain; charset=utf-8\r\n",
            },
            framing: ResponseFraming::Sized(14),
            keep_alive: true,
            head_prefix: &HEAD_PREFIX,
        };
        compose::head(&mut out, black_box(&head));
        black_box(&out);
    }
}

/// Sends sequential requests through a pipe in memory. Measures everything that the engine does
/// except system calls, including the pipe and the runtime.
fn exchange(
    times: usize,
    app: impl Application + Clone + Send + 'static,
    heads: &[impl AsRef<[u8]>],
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let engine = Server::new(app);
        let client = async move {
            let mut response = [0; 4096];
            for input in repeat(times, heads) {
                client.write_all(input).await.unwrap();
                let length = client.read(&mut response).await.unwrap();
                assert!(response[..length].starts_with(b"HTTP/1.1 200 OK\r\n"));
            }
        };
        tokio::join!(engine.serve_connection(server), client).0.unwrap();
    });
}

async fn hello(_: Request) -> Response {
    Response::text("Hello, world!\n")
}

/// A tower service, as a router of axum is one.
#[derive(Clone)]
struct HelloService;

impl Service<http::Request<Body>> for HelloService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        black_box(&request);
        ready(Ok(http::Response::new(Body::from("Hello, world!\n"))))
    }
}

async fn function(request: Request, next: Next<'_>) -> Response {
    next.call(request).await
}

/// Runs the browser's exchange with a middleware.
fn with_middleware(times: usize, middleware: impl Middleware + Clone + Send + 'static) {
    exchange(times, hello.wrap(middleware), &BROWSER);
}

/// Serves a small file from memory.
fn site() -> Directory {
    let files = [("index.html", include_bytes!("../../../LICENSE-MIT").as_slice())];
    Directory::embedded(files, DirectorySettings { compress: false, ..Default::default() })
}

/// Serves a small file that the server compresses once.
fn compressed_site() -> Directory {
    let files = [("index.html", include_bytes!("../../../LICENSE-MIT").as_slice())];
    Directory::embedded(files, DirectorySettings { min_compressed_bytes: 0, ..Default::default() })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [number, times] = &arguments[..]
        && let (Ok(number), Ok(times)) = (number.parse::<usize>(), times.parse())
    {
        WORKLOADS[number].1(times);
        return ExitCode::SUCCESS;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: valgrind is not installed");
        return match std::env::var_os("WEFT_REQUIRE_TOOLS") {
            Some(_) => ExitCode::FAILURE,
            None => ExitCode::SUCCESS,
        };
    }
    report(arguments.iter().any(|argument| argument == "--save"))
}

fn report(save: bool) -> ExitCode {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");
    let baseline = std::fs::read_to_string(file).unwrap_or_default();
    let baseline: BTreeMap<&str, u64> = baseline
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, count)| (name.trim(), count.parse().expect("a number")))
        .collect();
    let mut table = String::new();
    let mut has_regression = false;
    for (number, (name, _)) in WORKLOADS.iter().enumerate() {
        let runs = [MANY, FEW].map(|times| start(number, times));
        let [many_counted, few_counted] = runs.map(instructions);
        let count = (many_counted - few_counted) / (MANY - FEW);
        let before = baseline.get(name).copied();
        let verdict = match before {
            Some(before) if count * 100 > before * (100 + TOLERANCE) => "WORSE",
            Some(_) => "",
            None => "new",
        };
        has_regression |= verdict == "WORSE";
        println!("{name:20} {count:8}  before {:8}  {verdict}", before.unwrap_or(0));
        writeln!(table, "{name} {count}").unwrap();
    }
    if save {
        std::fs::write(file, table).expect("cannot write instructions.txt");
    }
    if has_regression && !save { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Starts this program under callgrind with a workload.
fn start(workload: usize, times: u64) -> Child {
    let program = std::env::current_exe().expect("cannot determine the path of this program");
    Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([workload.to_string(), times.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cannot run valgrind")
}

/// Returns the number of instructions of a run.
fn instructions(run: Child) -> u64 {
    let run = run.wait_with_output().expect("cannot read the output of valgrind");
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{stderr}");
    let collected = stderr.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .expect("no line 'Collected' in the output of callgrind")
        .1
        .trim()
        .parse()
        .expect("a number")
}
