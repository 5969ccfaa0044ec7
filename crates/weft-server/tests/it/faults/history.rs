//! Histories of the clients, of the upstream and of the access log, and the rules between them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A request as its client observed it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Value of the request's field `x-id`.
    pub id: u64,
    pub target: &'static Target,
    pub outcome: Outcome,
}

/// A resource that the clients request, with the only valid content of a 200 response.
#[derive(Debug)]
pub struct Target {
    pub path: &'static str,
    /// Length of the request's content; a request with content is a POST.
    pub upload_bytes: usize,
    pub content: fn() -> Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A complete response. Its content was valid if the status is 200.
    Whole { status: u16, body_bytes: usize },
    /// The connection ended within the response.
    Cut,
    /// The connection ended before the first byte of the response, or there was none.
    NoResponse,
}

/// The requests that an upstream has received, by `x-id`.
#[derive(Clone, Default)]
pub struct UpstreamHistory(Arc<Mutex<HashMap<u64, usize>>>);

impl UpstreamHistory {
    pub fn add(&self, id: u64) {
        *self.0.lock().unwrap().entry(id).or_default() += 1;
    }

    fn count(&self, id: u64) -> usize {
        self.0.lock().unwrap().get(&id).copied().unwrap_or(0)
    }
}

/// A line of the access log in the format [`LOG_FORMAT`].
#[derive(Debug)]
struct LogLine {
    status: u16,
    body_bytes: usize,
    is_complete: bool,
}

/// Format of the access log.
pub const LOG_FORMAT: &str = "%{x-id}i %s %B %X";

impl LogLine {
    /// Parses a line into its ID and the rest. Lines of requests without an ID are not from a
    /// client of these tests; `None`.
    fn parse(line: &str) -> Option<(u64, LogLine)> {
        let fields: Vec<&str> = line.split(' ').collect();
        let [id, status, body_bytes, end] = fields[..] else { panic!("a damaged line: {line:?}") };
        let id = id.parse().ok()?;
        let is_complete = match end {
            "+" => true,
            "X" => false,
            _ => panic!("a damaged line: {line:?}"),
        };
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("damaged: {line:?}"));
        let (status, body_bytes) = (number(status) as u16, number(body_bytes));
        Some((id, LogLine { status, body_bytes, is_complete }))
    }
}

/// Processes that served the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// All have exited after their last line was written.
    Exited,
    /// Some were killed: lines of the last half second are lost.
    Killed,
}

/// Asserts the rules between the histories:
///
/// - Each request whose client received the start of a response has exactly one line, with the
///   status and the size that the client received. Others have at most one.
/// - A response that a client received completely is complete for the log, too.
/// - An upstream receives a request with content at most once, and a response of the upstream has a
///   request.
pub fn check(exchanges: &[Exchange], upstream: &UpstreamHistory, log: &str, processes: Processes) {
    let mut lines: HashMap<u64, Vec<LogLine>> = HashMap::new();
    assert!(log.is_empty() || log.ends_with('\n'), "the last line is incomplete");
    for (id, line) in log.lines().filter_map(LogLine::parse) {
        lines.entry(id).or_default().push(line);
    }
    for exchange in exchanges {
        let lines = lines.remove(&exchange.id).unwrap_or_default();
        check_lines(exchange, &lines, processes);
        let received = upstream.count(exchange.id);
        if exchange.target.upload_bytes > 0 {
            assert!(received <= 1, "the upstream received it {received} times: {exchange:?}");
        }
        let is_success = matches!(exchange.outcome, Outcome::Whole { status: 200, .. });
        if is_success && exchange.target.path.starts_with("/up/") {
            assert!(received > 0, "the upstream did not receive it: {exchange:?}");
        }
    }
    assert!(lines.is_empty(), "lines without a request: {lines:?}");
}

fn check_lines(exchange: &Exchange, lines: &[LogLine], processes: Processes) {
    let context = || format!("{exchange:?} has the lines {lines:?}");
    assert!(lines.len() <= 1, "{}", context());
    let Some(line) = lines.first() else {
        let may_lack = processes == Processes::Killed || exchange.outcome == Outcome::NoResponse;
        assert!(may_lack, "{}", context());
        return;
    };
    if let Outcome::Whole { status, body_bytes } = exchange.outcome {
        assert_eq!((line.status, line.body_bytes), (status, body_bytes), "{}", context());
        assert!(line.is_complete, "{}", context());
    }
}

#[test]
fn checker_finds_each_violation() {
    const TARGET: Target = Target { path: "/up/a", upload_bytes: 1, content: Vec::new };
    let whole = Outcome::Whole { status: 200, body_bytes: 2 };
    let violates = |outcome, received: usize, log: &str, processes| {
        let upstream = UpstreamHistory::default();
        (0..received).for_each(|_| upstream.add(7));
        let exchanges = [Exchange { id: 7, target: &TARGET, outcome }];
        std::panic::catch_unwind(|| check(&exchanges, &upstream, log, processes)).is_err()
    };
    use Processes::{Exited, Killed};
    for (outcome, received, log, processes, expected) in [
        (whole, 1, "7 200 2 +\n", Exited, false),
        (whole, 1, "7 200 2 +\n- 200 2 +\n", Exited, false),
        (whole, 1, "", Exited, true),
        (whole, 1, "", Killed, false),
        (whole, 1, "7 200 2 +\n7 200 2 +\n", Exited, true),
        (whole, 1, "7 200 2 +\n8 200 2 +\n", Exited, true),
        (whole, 1, "7 200 2 X\n", Exited, true),
        (whole, 1, "7 503 2 +\n", Exited, true),
        (whole, 1, "7 200 1 +\n", Exited, true),
        (whole, 1, "7 200 2 +", Exited, true),
        (whole, 1, "7 200 2\n", Exited, true),
        (whole, 0, "7 200 2 +\n", Exited, true),
        (whole, 2, "7 200 2 +\n", Exited, true),
        (Outcome::Cut, 1, "7 200 1 X\n", Exited, false),
        (Outcome::Cut, 1, "", Exited, true),
        (Outcome::NoResponse, 1, "", Exited, false),
        (Outcome::NoResponse, 1, "7 499 0 X\n", Exited, false),
        (Outcome::NoResponse, 1, "7 499 0 X\n7 499 0 X\n", Exited, true),
    ] {
        let found = violates(outcome, received, log, processes);
        assert_eq!(found, expected, "{outcome:?} {received} {log:?} {processes:?}");
    }
}
