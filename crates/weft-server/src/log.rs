//! The access log, in Apache's combined format.
//!
//! Each worker appends to a buffer of its own; a writer thread takes the buffers over
//! at least once in half a second, and at the end. No line is torn and none is lost: when
//! the output cannot keep up, workers wait for it.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use weft::date::http_date;
use weft::{Error, Hooks, Peer, Record};

/// How long a line may wait for others before it is written.
const DELAY: Duration = Duration::from_millis(500);

/// A buffer with so much is written at once.
const FULL_BYTES: usize = 32 << 10;

/// A worker waits when its buffer has so much that the output did not take.
const MOST_BYTES: usize = 1 << 20;

/// Where the lines of all workers go.
#[derive(Clone)]
pub(crate) struct Sink {
    shared: Arc<Shared>,
    writer: Arc<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to write, or the end has come.
    news: Condvar,
    /// Nobody is to wait for the output any more.
    released: AtomicBool,
}

#[derive(Default)]
struct State {
    buffers: Vec<Arc<Buffer>>,
    urgency: Urgency,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    #[default]
    Nothing,
    /// Something waits, and may wait a little for more.
    Soon,
    Now,
    /// No line comes any more.
    Close,
}

/// The lines of one worker that are not written yet.
#[derive(Default)]
struct Buffer {
    lines: Mutex<Vec<u8>>,
    taken: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink {
    /// A sink that writes to standard output.
    pub(crate) fn stdout() -> io::Result<Sink> {
        let shared = Arc::new(Shared::default());
        let of_writer = shared.clone();
        let writer = std::thread::Builder::new().name("weft-log".to_owned());
        let writer = writer.spawn(move || of_writer.write_all(&mut io::stdout().lock()))?;
        Ok(Sink { shared, writer: Arc::new(writer) })
    }

    /// From now on nobody waits for the output: the program ends, and its buffers need no
    /// bound any more.
    pub(crate) fn release(&self) {
        self.shared.released.store(true, Relaxed);
        for buffer in &lock(&self.shared.state).buffers {
            let _waiting_or_not_yet = lock(&buffer.lines);
            buffer.taken.notify_all();
        }
    }

    /// Writes what is left and ends; gives up if the output takes nothing for so long.
    pub(crate) fn close(&self, patience: Duration) {
        self.shared.urge(Urgency::Close);
        let start = Instant::now();
        while !self.writer.is_finished() {
            if start.elapsed() > patience {
                complain("the end of the access log is lost: nobody takes it");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn complain(problem: impl std::fmt::Display) {
    // Where even that cannot be said, nothing can.
    let _ = writeln!(io::stderr(), "weft: {problem}");
}

impl Shared {
    fn urge(&self, urgency: Urgency) {
        let mut state = lock(&self.state);
        if state.urgency < urgency {
            state.urgency = urgency;
            self.news.notify_one();
        }
    }

    /// The writer's thread.
    fn write_all(&self, output: &mut impl Write) {
        let mut lines = Vec::new();
        loop {
            let (urgency, buffers) = self.wait();
            for buffer in buffers {
                std::mem::swap(&mut *lock(&buffer.lines), &mut lines);
                buffer.taken.notify_all();
                if let Err(error) = output.write_all(&lines).and_then(|()| output.flush()) {
                    complain(format_args!("the access log cannot be written: {error}"));
                }
                lines.clear();
            }
            if urgency == Urgency::Close {
                return;
            }
        }
    }

    /// Waits until there is something to write.
    fn wait(&self) -> (Urgency, Vec<Arc<Buffer>>) {
        let nothing = |state: &mut State| state.urgency == Urgency::Nothing;
        let hurry = |state: &mut State| state.urgency <= Urgency::Soon;
        let state = self.news.wait_while(lock(&self.state), nothing);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let state = self.news.wait_timeout_while(state, DELAY, hurry);
        let (mut state, _) = state.unwrap_or_else(PoisonError::into_inner);
        let urgency = std::mem::take(&mut state.urgency);
        (urgency, state.buffers.clone())
    }
}

/// The access log of one worker.
pub(crate) struct AccessLog {
    shared: Arc<Shared>,
    buffer: Arc<Buffer>,
    line: RefCell<Line>,
}

impl AccessLog {
    pub(crate) fn new(sink: Sink) -> AccessLog {
        let buffer = Arc::<Buffer>::default();
        lock(&sink.shared.state).buffers.push(buffer.clone());
        AccessLog { shared: sink.shared, buffer, line: RefCell::default() }
    }
}

impl Hooks for AccessLog {
    fn error(&self, _: &Peer, error: &Error) {
        crate::run::complain_of_setting(error);
    }

    fn answered(&self, record: &Record<'_>) {
        let mut line = self.line.borrow_mut();
        line.compose(record, SystemTime::now());
        let lines = lock(&self.buffer.lines);
        let released = &self.shared.released;
        let full = |lines: &mut Vec<u8>| lines.len() >= MOST_BYTES && !released.load(Relaxed);
        let lines = self.buffer.taken.wait_while(lines, full);
        let mut lines = lines.unwrap_or_else(PoisonError::into_inner);
        let before = lines.len();
        lines.extend_from_slice(&line.text);
        let after = lines.len();
        drop(lines);
        if before < FULL_BYTES && after >= FULL_BYTES {
            self.shared.urge(Urgency::Now);
        } else if before == 0 {
            self.shared.urge(Urgency::Soon);
        }
    }
}

/// One line, and the date as it was last written.
#[derive(Default)]
struct Line {
    text: Vec<u8>,
    second: u64,
    date: String,
}

impl Line {
    /// `host - - [date] "request line" status bytes "referer" "user agent"`.
    fn compose(&mut self, record: &Record<'_>, now: SystemTime) {
        self.set_date(now);
        let Line { text, date, .. } = self;
        text.clear();
        match record.peer.address() {
            Some(address) => append(text, format_args!("{}", address.ip())),
            None => text.extend_from_slice(b"unix:"),
        }
        text.extend_from_slice(b" - - ");
        text.extend_from_slice(date.as_bytes());
        text.extend_from_slice(b" \"");
        match record.head {
            Some(head) => {
                escape(text, head.method().as_str().as_bytes());
                text.push(b' ');
                escape(text, head.target().as_bytes());
                append(text, format_args!(" {:?}", head.version()));
            }
            None => text.push(b'-'),
        }
        append(text, format_args!("\" {} ", record.status.as_u16()));
        match record.body_bytes {
            0 => text.push(b'-'),
            bytes => append(text, format_args!("{bytes}")),
        }
        for name in ["referer", "user-agent"] {
            text.extend_from_slice(b" \"");
            let value = record.head.and_then(|head| head.headers().get_bytes(name));
            escape(text, value.unwrap_or(b"-"));
            text.push(b'"');
        }
        text.push(b'\n');
    }

    /// `[06/Nov/1994:08:49:37 +0000]`, once a second.
    fn set_date(&mut self, now: SystemTime) {
        let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.second != second || self.date.is_empty() {
            self.second = second;
            let date = http_date(now);
            let (day, month) = (&date[5..7], &date[8..11]);
            let (year, time) = (&date[12..16], &date[17..25]);
            self.date = format!("[{day}/{month}/{year}:{time} +0000]");
        }
    }
}

fn append(text: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a vector takes everything");
}

/// Appends a client's bytes so that they can end neither the quotes nor the line.
fn escape(text: &mut Vec<u8>, bytes: &[u8]) {
    for &b in bytes {
        match b {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', b]),
            b' '..=b'~' => text.push(b),
            _ => append(text, format_args!("\\x{b:02x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::{Peer, StatusCode, testing};

    fn line(request: &str, status: u16, body_bytes: u64) -> String {
        let request = testing::request(request.to_owned());
        let mut line = Line::default();
        let record = Record {
            peer: &Peer::default(),
            head: Some(request.head()),
            status: StatusCode::from_u16(status).unwrap(),
            body_bytes,
            duration: Duration::ZERO,
        };
        line.compose(&record, SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        String::from_utf8(line.text).unwrap()
    }

    #[test]
    fn lines_are_in_the_combined_format() {
        for (request, status, bytes, expected) in [
            (
                "GET /a?b HTTP/1.1\r\nHost: a\r\nReferer: http://r/\r\nUser-Agent: curl/8\r\n\r\n",
                200,
                5,
                "\"GET /a?b HTTP/1.1\" 200 5 \"http://r/\" \"curl/8\"",
            ),
            (
                "POST /\" HTTP/1.0\r\nUser-Agent: a\"b\\c\td\r\n\r\n",
                404,
                0,
                r#""POST /\" HTTP/1.0" 404 - "-" "a\"b\\c\x09d""#,
            ),
        ] {
            let date = "[06/Nov/1994:08:49:37 +0000]";
            let expected = format!("unix: - - {date} {expected}\n");
            assert_eq!(line(request, status, bytes), expected);
        }
    }
}
