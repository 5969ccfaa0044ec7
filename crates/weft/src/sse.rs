//! Server-sent events (WHATWG HTML §9.2): a response that stays open and delivers a sequence of
//! events, which browsers receive with `EventSource`.
//!
//! Events are taken from a [`stream`], or sent into a [`channel`] from any task or thread:
//!
//! ```
//! use weft::{Request, Response, sse};
//!
//! async fn numbers(request: Request) -> Response {
//!     // A client that reconnects sends the ID of the last event it received.
//!     let last = sse::last_event_id(&request).and_then(|id| id.parse::<u64>().ok());
//!     let first = last.map_or(1, |id| id + 1);
//!     let (events, response) = sse::channel(&request);
//!     tokio::spawn(async move {
//!         for number in first..=3 {
//!             let event = sse::Event::data(format!("number {number}")).id(number.to_string());
//!             if events.send(event).await.is_err() {
//!                 break; // The client has disconnected, or the server is shutting down.
//!             }
//!         }
//!     });
//!     response
//! }
//! # let request = "GET / HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 2\r\n\r\n";
//! # weft::testing::call(numbers, weft::testing::request(request))
//! #     .assert_text("id: 3\ndata: number 3\n\n");
//! ```
//!
//! The response ends when its source ends, or when the server shuts down. A browser then
//! reconnects; only a response with status 204 prevents that.

use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::HeaderName;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http_body::Frame;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Sleep, sleep};

use crate::error::{Error, Result};
use crate::message::body::Body;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;

/// One event. All parts are sanitized or split into lines, so that untrusted text can neither end
/// the event nor begin another.
///
/// ```
/// use weft::sse::Event;
///
/// let event = Event::data("two\nlines").event("greeting").id("7");
/// assert_eq!(event.to_string(), "event: greeting\nid: 7\ndata: two\ndata: lines\n\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Complete lines of all fields except `data`.
    fields: String,
    data: String,
}

impl Event {
    /// Creates an event with this data, of any number of lines. LF, CRLF and CR end a line; the
    /// client receives them all as LF.
    pub fn data(text: impl AsRef<str>) -> Event {
        Event { fields: String::new(), data: lines("data", text.as_ref()) }
    }

    /// Creates an event whose data is a value as JSON.
    ///
    /// # Errors
    /// [`Other`](crate::ErrorKind::Other) if the value cannot be written as JSON, such as a map
    /// whose keys are not text.
    ///
    /// ```
    /// use weft::sse::Event;
    ///
    /// let event = Event::json([1, 2])?.event("numbers");
    /// assert_eq!(event.to_string(), "event: numbers\ndata: [1,2]\n\n");
    /// # Ok::<(), weft::Error>(())
    /// ```
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize>(value: T) -> Result<Event> {
        serde_json::to_string(&value).map(Event::data).map_err(Error::other)
    }

    /// Creates an event without data, which clients do not dispatch. It can still set
    /// [`id`](Event::id) or [`retry`](Event::retry).
    pub fn empty() -> Event {
        Event::default()
    }

    /// Creates an event without data, with a comment that clients ignore.
    pub fn comment(text: impl AsRef<str>) -> Event {
        Event { fields: lines("", text.as_ref()), data: String::new() }
    }

    /// Sets the type of the event, which selects the listeners in the client; `message` if not
    /// set. A line break or NUL in it becomes a space.
    pub fn event(self, name: impl AsRef<str>) -> Event {
        self.field("event", name.as_ref())
    }

    /// Sets the ID that the client sends as [the last event](last_event_id) when it reconnects. A
    /// line break or NUL in it becomes a space.
    pub fn id(self, id: impl AsRef<str>) -> Event {
        self.field("id", id.as_ref())
    }

    /// Sets the time that the client waits before it reconnects, in whole milliseconds. The
    /// default of browsers is 3 to 5 s.
    pub fn retry(self, after: Duration) -> Event {
        self.field("retry", &after.as_millis().to_string())
    }

    fn field(mut self, name: &str, value: &str) -> Event {
        let value = value.replace(['\r', '\n', '\0'], " ");
        writeln!(self.fields, "{name}: {value}").expect("writing to a string cannot fail");
        self
    }
}

/// Formats each line of a text as a field.
fn lines(name: &str, text: &str) -> String {
    let mut fields = String::with_capacity(text.len() + name.len() + 4);
    for line in text.replace("\r\n", "\n").split(['\r', '\n']) {
        writeln!(fields, "{name}: {line}").expect("writing to a string cannot fail");
    }
    fields
}

/// Formats the event as sent, including the empty line at its end.
impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}{}", self.fields, self.data)
    }
}

/// Settings of event streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseSettings {
    /// Time without an event after which a comment is sent, so that intermediaries do not close
    /// the connection as idle, and a vanished client is detected. [`Duration::MAX`] disables
    /// this.
    ///
    /// Default 15 s, as the standard recommends.
    pub keep_alive: Duration,

    /// Maximum number of events queued in a [`channel`] before senders wait for the client.
    ///
    /// Default 16; at least 1.
    pub capacity: usize,
}

impl Default for SseSettings {
    fn default() -> SseSettings {
        SseSettings { keep_alive: Duration::from_secs(15), capacity: 16 }
    }
}

/// Creates a response with the events of a stream, with the default [`SseSettings`]; see
/// [`SseSettings::stream`].
pub fn stream<S>(request: &Request, events: S) -> Response
where
    S: Stream<Item = Event> + Send + 'static,
{
    SseSettings::default().stream(request, events)
}

/// Creates a channel and a response with its events, with the default [`SseSettings`]; see
/// [`SseSettings::channel`].
pub fn channel(request: &Request) -> (Sender, Response) {
    SseSettings::default().channel(request)
}

/// The ID of the last event that the client received. Clients send it in `Last-Event-ID` when they
/// reconnect.
pub fn last_event_id(request: &RequestHead) -> Option<&str> {
    request.headers().get("last-event-id")
}

impl SseSettings {
    /// Creates a response with the events of a stream. The stream is polled for the next event
    /// when the previous ones have been sent, and dropped when the client disconnects.
    ///
    /// `Cache-Control: no-cache` prevents caching, `X-Accel-Buffering: no` disables buffering in
    /// nginx and other proxies. `Compress` does not buffer events either.
    pub fn stream<S>(self, request: &Request, events: S) -> Response
    where
        S: Stream<Item = Event> + Send + 'static,
    {
        let mut shutdown = request.shutdown();
        let events = EventBody {
            source: Box::pin(events),
            keep_alive: self.keep_alive,
            idle_timer: None,
            shutdown: Box::pin(async move { shutdown.requested().await }),
        };
        Response::from_body(Body::boxed(events))
            .with_header(CONTENT_TYPE, "text/event-stream")
            .with_header(CACHE_CONTROL, "no-cache")
            .with_header(X_ACCEL_BUFFERING, "no")
    }

    /// Creates a response with the events sent through the sender, from any task or thread. The
    /// response ends when the sender and all its clones are dropped.
    pub fn channel(self, request: &Request) -> (Sender, Response) {
        let (sender, receiver) = mpsc::channel(self.capacity.clamp(1, Semaphore::MAX_PERMITS));
        (Sender(sender), self.stream(request, EventReceiver(receiver)))
    }
}

const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Sends events to one client.
#[derive(Clone, Debug)]
pub struct Sender(mpsc::Sender<Event>);

impl Sender {
    /// Sends an event; waits while [`SseSettings::capacity`] events are queued for the client.
    ///
    /// # Errors
    /// [`Disconnected`](crate::ErrorKind::Disconnected) if the response has ended: the client has
    /// disconnected, or the server is shutting down. Success does not mean that the event has
    /// arrived: a vanished client is detected only some time later.
    pub async fn send(&self, event: Event) -> Result<()> {
        self.0.send(event).await.map_err(|_| Error::disconnected())
    }

    /// Waits until the response has ended, for tasks that have nothing to send.
    pub async fn closed(&self) {
        self.0.closed().await
    }
}

/// Receiving half of a [`Sender`].
struct EventReceiver(mpsc::Receiver<Event>);

impl Stream for EventReceiver {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_recv(cx)
    }
}

/// Response body that formats events.
struct EventBody<S> {
    source: Pin<Box<S>>,
    keep_alive: Duration,
    /// Keep-alive timer, set while no event is available.
    idle_timer: Option<Pin<Box<Sleep>>>,
    shutdown: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<S: Stream<Item = Event>> http_body::Body for EventBody<S> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.shutdown.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let next = self.source.as_mut().poll_next(cx);
        let keep_alive = self.keep_alive;
        let text = match next {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(event)) => event.to_string().into(),
            Poll::Pending => {
                let idle_timer = self.idle_timer.get_or_insert_with(|| Box::pin(sleep(keep_alive)));
                std::task::ready!(idle_timer.as_mut().poll(cx));
                Bytes::from_static(b":\n\n")
            }
        };
        self.idle_timer = None;
        Poll::Ready(Some(Ok(Frame::data(text))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn formats_events() {
        for (event, text) in [
            (Event::data("a"), "data: a\n\n"),
            (Event::data(""), "data: \n\n"),
            (Event::data(" a "), "data:  a \n\n"),
            (Event::data("a\nb\rc\r\nd"), "data: a\ndata: b\ndata: c\ndata: d\n\n"),
            (Event::data("a\n"), "data: a\ndata: \n\n"),
            (Event::data("a\n\nid: 6\n"), "data: a\ndata: \ndata: id: 6\ndata: \n\n"),
            (Event::data("\0"), "data: \0\n\n"),
            (Event::data("días").id("é"), "id: é\ndata: días\n\n"),
            (Event::data("a").event("b\ndata: c"), "event: b data: c\ndata: a\n\n"),
            (Event::data("a").id("1\r\n\r\n2\0"), "id: 1    2 \ndata: a\n\n"),
            (Event::empty().id("1"), "id: 1\n\n"),
            (Event::empty(), "\n"),
            (Event::empty().retry(Duration::from_millis(1_500)), "retry: 1500\n\n"),
            (Event::comment("a\n\ndata: b"), ": a\n: \n: data: b\n\n"),
        ] {
            assert_eq!(event.to_string(), text);
        }
    }

    #[test]
    fn response_declares_type_and_no_cache() {
        let reply = testing::get(
            async |request: Request| {
                let (events, response) = channel(&request);
                events.send(Event::data("a")).await.expect("the channel has capacity");
                response
            },
            "/",
        );
        reply.assert_text("data: a\n\n");
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        assert_eq!(reply.header("cache-control"), Some("no-cache"));
    }
}
