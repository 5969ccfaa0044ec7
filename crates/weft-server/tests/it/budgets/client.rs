//! The attacking client: many connections on one thread, each following the script of the attack.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::attack::{Attack, Ends, Reads, Transport};
use super::http3;
use super::wire::{GOAWAY, HEADERS, RST_STREAM, error_name};
use crate::common::tls_client::tls_settings;

/// Maximum time for an attack that the server may serve.
pub const SERVED_TIMEOUT: Duration = Duration::from_secs(30);

/// Repetitions without a pace are joined to writes of at least this size.
pub const WRITE_BYTES: usize = 16 << 10;

/// Further repetitions are composed for each connection.
const MAX_COMPOSED_BYTES: usize = 16 << 20;

/// State of a running attack, which the client and the probe of the server share.
#[derive(Default)]
pub struct Progress {
    /// Number of bytes of the script that were sent, over all connections.
    pub sent: AtomicU64,
    /// Set when all connections are open.
    pub is_open: AtomicBool,
    /// Number of connections over UDP that the server has closed.
    pub closed: AtomicUsize,
    /// Set when the server has closed all connections.
    pub is_given_up: AtomicBool,
}

impl Progress {
    async fn given_up(&self) {
        while !self.is_given_up.load(Relaxed) {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The script that all connections of an attack follow.
struct Script {
    attack: Attack,
    composed: Mutex<Composed>,
}

/// The first repetitions of a script, which are composed once for all connections.
#[derive(Default)]
struct Composed {
    repetitions: Vec<Arc<[u8]>>,
    bytes: usize,
}

impl Script {
    fn repetition(&self, number: usize) -> Arc<[u8]> {
        let mut composed = self.composed.lock().unwrap();
        while composed.repetitions.len() <= number {
            if composed.bytes > MAX_COMPOSED_BYTES {
                return (self.attack.repeat)(number).into();
            }
            let next: Arc<[u8]> = (self.attack.repeat)(composed.repetitions.len()).into();
            composed.bytes += next.len() + size_of::<Arc<[u8]>>();
            composed.repetitions.push(next);
        }
        composed.repetitions[number].clone()
    }
}

/// Runs an attack until its end; returns the answer on each connection.
pub fn run(attack: &Attack, address: SocketAddr, progress: &Arc<Progress>) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match attack.transport {
            Transport::Http3(streams) => {
                return http3::client::run(attack, streams, address, progress).await;
            }
            Transport::Datagrams => {
                return http3::client::send_datagrams(attack, address, progress).await;
            }
            _ => {}
        }
        let script = Arc::new(Script { attack: attack.clone(), composed: Mutex::default() });
        let mut connections = Vec::new();
        for _ in 0..attack.connections {
            connections.push(connect(attack, address).await.expect("a connection"));
        }
        progress.is_open.store(true, Relaxed);
        let tasks = connections.into_iter().map(|socket| {
            let (script, progress) = (script.clone(), progress.clone());
            tokio::spawn(async move { follow(&script, socket, &progress).await })
        });
        let mut answers = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            answers.push(task.await.expect("a connection does not panic"));
        }
        answers
    })
}

async fn connect(attack: &Attack, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((attack.source, 0).into())?;
    if attack.reads != Reads::All {
        socket.set_recv_buffer_size(4 << 10)?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Follows the script on one connection; returns the answer.
async fn follow(script: &Script, socket: TcpStream, progress: &Progress) -> String {
    let attack = &script.attack;
    let answer = Mutex::new(Answer::default());
    let followed = async {
        if let Some(stream) = handshake(attack, socket, progress, &answer).await {
            exchange(script, stream, progress, &answer).await;
        }
    };
    match &attack.ends {
        Ends::Served(_) => drop(timeout(SERVED_TIMEOUT, followed).await),
        Ends::GivenUp(seconds) => {
            let until_given_up =
                timeout(Duration::from_secs_f64(*seconds.end()), progress.given_up());
            // The sockets stay open until the server has closed them.
            let held = async {
                followed.await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                _ = until_given_up => {}
                () = held => {}
            }
        }
    }
    answer.into_inner().unwrap().summary()
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Brings the transport up; `None` if the connection ends in it.
async fn handshake(
    attack: &Attack,
    socket: TcpStream,
    progress: &Progress,
    answer: &Mutex<Answer>,
) -> Option<Pin<Box<dyn Stream>>> {
    let protocols: &[&str] = match &attack.transport {
        Transport::Plain | Transport::Records => return Some(Box::pin(socket)),
        Transport::Tls(protocol) => &[protocol],
        Transport::KeyUpdates | Transport::AfterHandshake => &["http/1.1"],
        Transport::Http3(_) | Transport::Datagrams => unreachable!("they have no TCP connection"),
    };
    let mut stream = match tls_connect(socket, protocols).await {
        Ok(stream) => stream,
        Err(error) => {
            answer.lock().unwrap().failure = Some(error.kind().to_string());
            return None;
        }
    };
    if attack.transport == Transport::AfterHandshake {
        return Some(Box::pin(stream.into_inner().0));
    }
    if attack.transport == Transport::KeyUpdates {
        for _ in 0..attack.times {
            let (_, connection) = stream.get_mut();
            connection.refresh_traffic_keys().expect("a TLS 1.3 connection");
            // A KeyUpdate is a record of 5 + 22 bytes (RFC 8446 §4.6.3, §5.2).
            progress.sent.fetch_add(27, Relaxed);
            if stream.flush().await.is_err() {
                break;
            }
        }
    }
    Some(Box::pin(stream))
}

/// Opens a TLS connection that offers these application protocols.
pub async fn tls_connect(
    socket: TcpStream,
    protocols: &[&str],
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let connector = TlsConnector::from(Arc::new(tls_settings(protocols)));
    connector.connect("localhost".try_into().expect("a name"), socket).await
}

/// Sends the script and reads the answer.
async fn exchange(
    script: &Script,
    stream: Pin<Box<dyn Stream>>,
    progress: &Progress,
    answer: &Mutex<Answer>,
) {
    let attack = &script.attack;
    let (reader, writer) = tokio::io::split(stream);
    let writing = async {
        // The server may close the connection at any time.
        let _ = write(script, writer, progress).await;
        match attack.ends {
            Ends::Served(hold) => {
                sleep(hold).await;
                // On a busy machine, the answer may need longer. Some attacks have none.
                let has_answer = || answer.lock().unwrap().has_response();
                let waits = !hold.is_zero() && !attack.answer.contains("nothing");
                while waits && !has_answer() {
                    sleep(Duration::from_millis(5)).await;
                }
            }
            Ends::GivenUp(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = writing => {}
        () = read(attack.reads, reader, answer) => {}
    }
}

async fn write(
    script: &Script,
    mut writer: impl AsyncWrite + Unpin,
    progress: &Progress,
) -> io::Result<()> {
    let attack = &script.attack;
    let mut batch = attack.once.clone();
    let times = if attack.transport == Transport::KeyUpdates { 0 } else { attack.times };
    for number in 0..times {
        let bytes = script.repetition(number);
        if attack.pace.is_some() || batch.len() + bytes.len() > WRITE_BYTES {
            send(&mut writer, &mut batch, progress).await?;
        }
        if let Some(pace) = attack.pace.filter(|pace| !pace.is_zero()) {
            sleep(pace).await;
        }
        batch.extend_from_slice(&bytes);
    }
    send(&mut writer, &mut batch, progress).await?;
    send(&mut writer, &mut attack.last.clone(), progress).await
}

/// Sends the bytes of `batch`, which is empty afterwards.
async fn send(
    writer: &mut (impl AsyncWrite + Unpin),
    batch: &mut Vec<u8>,
    progress: &Progress,
) -> io::Result<()> {
    let mut rest = &batch[..];
    while !rest.is_empty() {
        let written = writer.write(rest).await?;
        progress.sent.fetch_add(written as u64, Relaxed);
        rest = &rest[written..];
    }
    batch.clear();
    writer.flush().await
}

/// Reads to the end of the connection.
async fn read(reads: Reads, mut reader: impl AsyncRead + Unpin, answer: &Mutex<Answer>) {
    let mut buffer = vec![0; if reads == Reads::Slowly { 64 } else { 64 << 10 }];
    loop {
        match reads {
            Reads::All => {}
            Reads::Nothing => std::future::pending().await,
            Reads::Slowly => sleep(Duration::from_millis(100)).await,
        }
        match reader.read(&mut buffer).await {
            Ok(length @ 1..) => answer.lock().unwrap().receive(&buffer[..length]),
            _ => break,
        }
    }
}

/// The answer that a client received, in one word.
#[derive(Default)]
struct Answer {
    /// The first bytes of an HTTP/1 response.
    start: Vec<u8>,
    frames: Frames,
    failure: Option<String>,
}

impl Answer {
    fn receive(&mut self, bytes: &[u8]) {
        self.frames.receive(bytes);
        let missing = 12_usize.saturating_sub(self.start.len()).min(bytes.len());
        self.start.extend(&bytes[..missing]);
    }

    /// Returns true if more than the SETTINGS of HTTP/2 were received.
    fn has_response(&self) -> bool {
        match &self.start[..] {
            [] => false,
            [_, _, _, 4, ..] => self.frames.summary() != "SETTINGS",
            _ => true,
        }
    }

    /// Returns the status of the first HTTP/1 response, the most serious HTTP/2 frame, `nothing`,
    /// or else the first received bytes.
    fn summary(self) -> String {
        if let Some(failure) = self.failure {
            return failure;
        }
        match &self.start[..] {
            [] => "nothing".to_owned(),
            [b'H', b'T', b'T', b'P', b'/', b'1', _, _, _, status @ ..] => {
                String::from_utf8_lossy(status).into_owned()
            }
            [21, 3, ..] => "TLS alert".to_owned(),
            [22, 3, ..] => "TLS handshake".to_owned(),
            [23, 3, ..] => "TLS data".to_owned(),
            [_, _, _, 4, ..] => self.frames.summary(),
            other => other.escape_ascii().to_string(),
        }
    }
}

/// The received HTTP/2 frames, as far as the answer depends on them.
#[derive(Default)]
struct Frames {
    /// Frame header and the first four bytes after it, or after the last stream of a GOAWAY.
    header: Vec<u8>,
    /// Number of bytes of the payload that were not received yet.
    remaining: usize,
    status: Option<u16>,
    reset: Option<&'static str>,
    goaway: Option<&'static str>,
}

impl Frames {
    fn receive(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.header.len() < 9 {
                let taken = (9 - self.header.len()).min(bytes.len());
                self.header.extend(&bytes[..taken]);
                bytes = &bytes[taken..];
                if let [a, b, c, _, _, _, _, _, _] = self.header[..] {
                    self.remaining = u32::from_be_bytes([0, a, b, c]) as usize;
                }
            } else {
                let taken = self.remaining.min(bytes.len());
                let kept = 17_usize.saturating_sub(self.header.len()).min(taken);
                self.header.extend(&bytes[..kept]);
                self.remaining -= taken;
                bytes = &bytes[taken..];
            }
            if self.header.len() >= 9 && self.remaining == 0 {
                self.end_frame();
            }
        }
    }

    fn end_frame(&mut self) {
        let (header, payload) = self.header.split_at(9);
        let code = |at: usize| {
            let code = payload.get(at..at + 4)?;
            Some(error_name(u32::from_be_bytes(code.try_into().expect("four bytes"))))
        };
        match header[3] {
            HEADERS if self.status.is_none() => self.status = status(payload),
            RST_STREAM => self.reset = self.reset.or(code(0)),
            GOAWAY => self.goaway = code(4).filter(|name| *name != "NO_ERROR").or(self.goaway),
            _ => {}
        }
        self.header.clear();
    }

    fn summary(&self) -> String {
        match (self.goaway, self.reset, self.status) {
            (Some(error), _, _) => format!("GOAWAY {error}"),
            (_, Some(error), _) => format!("RST_STREAM {error}"),
            (_, _, Some(status)) => status.to_string(),
            _ => "SETTINGS".to_owned(),
        }
    }
}

/// Returns the status of a field block that begins with `:status`, as an indexed field or as a
/// literal (RFC 7541 §6.1, §6.2, Appendix A).
fn status(block: &[u8]) -> Option<u16> {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    match block {
        [index @ 0x88..=0x8e, ..] => Some(INDEXED[usize::from(index - 0x88)]),
        [0x08 | 0x48 | 0x18, 3, digits @ ..] => {
            std::str::from_utf8(digits.get(..3)?).ok()?.parse().ok()
        }
        _ => None,
    }
}

// -- TLS
