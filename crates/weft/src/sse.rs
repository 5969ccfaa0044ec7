//! Server-sent events (WHATWG HTML §9.2): a response that stays open and brings one event after
//! the other, as `EventSource` in a browser reads them.
//!
//! Events come of a [`stream`], or are sent into a [`channel`] from wherever they happen:
//!
//! ```
//! use weft::{Request, Response, sse};
//!
//! async fn numbers(request: Request) -> Response {
//!     // A client that has lost its connection says which event was its last.
//!     let seen = sse::last_event_id(&request).and_then(|id| id.parse::<u64>().ok());
//!     let first = seen.map_or(1, |id| id + 1);
//!     let (events, response) = sse::channel(&request);
//!     tokio::spawn(async move {
//!         for number in first..=3 {
//!             let event = sse::Event::data(format!("number {number}")).id(number.to_string());
//!             if events.send(event).await.is_err() {
//!                 break; // The client has left, or the server is to stop.
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
//! The response ends when its source does, or when the server is to stop. A browser then
//! connects again; only a response of status 204 makes it give up.

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
use crate::message::request::{Head, Request};
use crate::message::response::Response;

/// One event. Whatever its parts are made of, they stay within it: text from elsewhere can
/// neither end the event nor begin another.
///
/// ```
/// use weft::sse::Event;
///
/// let event = Event::data("two\nlines").event("greeting").id("7");
/// assert_eq!(event.to_string(), "event: greeting\nid: 7\ndata: two\ndata: lines\n\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Whole lines.
    fields: String,
    data: String,
}

impl Event {
    /// An event with this data, of any number of lines. A line ends with LF, CRLF or CR, and
    /// reaches the client as ended by LF.
    pub fn data(text: impl AsRef<str>) -> Event {
        Event { fields: String::new(), data: lines("data", text.as_ref()) }
    }

    /// An event without data, which a client's code does not see. It may still set an
    /// [`id`](Event::id) or [`retry`](Event::retry).
    pub fn empty() -> Event {
        Event::default()
    }

    /// An event without data that carries a remark for whoever reads the stream itself.
    pub fn comment(text: impl AsRef<str>) -> Event {
        Event { fields: lines("", text.as_ref()), data: String::new() }
    }

    /// The type of the event, for which the client listens; `message` if it is not set. A line
    /// break or NUL in it becomes a space.
    pub fn event(self, name: impl AsRef<str>) -> Event {
        self.field("event", name.as_ref())
    }

    /// What the client will name as [the last event](last_event_id) when it connects again. A
    /// line break or NUL in it becomes a space.
    pub fn id(self, id: impl AsRef<str>) -> Event {
        self.field("id", id.as_ref())
    }

    /// How long the client is to wait before it connects again, in whole milliseconds. Browsers
    /// take 3 to 5 s unless they are told.
    pub fn retry(self, after: Duration) -> Event {
        self.field("retry", &after.as_millis().to_string())
    }

    fn field(mut self, name: &str, value: &str) -> Event {
        let value = value.replace(['\r', '\n', '\0'], " ");
        writeln!(self.fields, "{name}: {value}").expect("a string takes everything");
        self
    }
}

/// Each line of a text as a field.
fn lines(name: &str, text: &str) -> String {
    let mut fields = String::with_capacity(text.len() + name.len() + 4);
    for line in text.replace("\r\n", "\n").split(['\r', '\n']) {
        writeln!(fields, "{name}: {line}").expect("a string takes everything");
    }
    fields
}

/// The event as it is sent, the empty line behind it included.
impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}{}", self.fields, self.data)
    }
}

/// What events are sent with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// After how long without an event a comment is sent: so that nothing on the way takes the
    /// connection for dead, and a client that has vanished is found out. [`Duration::MAX`]
    /// turns that off.
    ///
    /// Default 15 s, as the standard recommends.
    pub keep_alive: Duration,

    /// How many events a [`channel`] holds before its senders have to wait for the client.
    ///
    /// Default 16; at least 1.
    pub capacity: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { keep_alive: Duration::from_secs(15), capacity: 16 }
    }
}

/// Answers with the events of a stream, with the default [`Settings`]; see
/// [`Settings::stream`].
pub fn stream<S>(request: &Request, events: S) -> Response
where
    S: Stream<Item = Event> + Send + 'static,
{
    Settings::default().stream(request, events)
}

/// Answers with the events that are sent, with the default [`Settings`]; see
/// [`Settings::channel`].
pub fn channel(request: &Request) -> (Sender, Response) {
    Settings::default().channel(request)
}

/// The id of the last event that the client has seen, in the `Last-Event-ID` of a request that
/// it makes after a connection was lost.
pub fn last_event_id(request: &Head) -> Option<&str> {
    request.headers().get("last-event-id")
}

impl Settings {
    /// Answers with the events of a stream. It is polled for the next event when the client
    /// has taken what went before, and dropped when the client leaves.
    ///
    /// `Cache-Control: no-cache` keeps caches out, `X-Accel-Buffering: no` tells nginx and
    /// others to hand events on at once. `Compress` does so too.
    pub fn stream<S>(self, request: &Request, events: S) -> Response
    where
        S: Stream<Item = Event> + Send + 'static,
    {
        let mut shutdown = request.shutdown();
        let events = Events {
            source: Box::pin(events),
            keep_alive: self.keep_alive,
            quiet: None,
            stopping: Box::pin(async move { shutdown.requested().await }),
        };
        Response::body(Body::own(events))
            .with_header(CONTENT_TYPE, "text/event-stream")
            .with_header(CACHE_CONTROL, "no-cache")
            .with_header(X_ACCEL_BUFFERING, "no")
    }

    /// Answers with the events that are sent through the sender, in any task or thread. The
    /// response ends when the sender and all its clones are dropped.
    pub fn channel(self, request: &Request) -> (Sender, Response) {
        let (sender, receiver) = mpsc::channel(self.capacity.clamp(1, Semaphore::MAX_PERMITS));
        (Sender(sender), self.stream(request, Received(receiver)))
    }
}

const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Sends events to one client.
#[derive(Clone, Debug)]
pub struct Sender(mpsc::Sender<Event>);

impl Sender {
    /// Sends an event; waits while the client is behind by [`Settings::capacity`] events.
    ///
    /// # Errors
    /// [`Disconnected`](crate::ErrorKind::Disconnected) if the response has ended: the client
    /// has left, or the server is to stop. That an event was taken does not say that it has
    /// arrived: a client that has vanished is noticed only some time later.
    pub async fn send(&self, event: Event) -> Result<()> {
        self.0.send(event).await.map_err(|_| Error::disconnected())
    }

    /// Waits until the response has ended, for whoever has nothing to send.
    pub async fn closed(&self) {
        self.0.closed().await
    }
}

/// The other end of a [`Sender`].
struct Received(mpsc::Receiver<Event>);

impl Stream for Received {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_recv(cx)
    }
}

/// Events as a body.
struct Events<S> {
    source: Pin<Box<S>>,
    keep_alive: Duration,
    /// Runs while nothing is sent.
    quiet: Option<Pin<Box<Sleep>>>,
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<S: Stream<Item = Event>> http_body::Body for Events<S> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.stopping.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let next = self.source.as_mut().poll_next(cx);
        let keep_alive = self.keep_alive;
        let text = match next {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(event)) => event.to_string().into(),
            Poll::Pending => {
                let quiet = self.quiet.get_or_insert_with(|| Box::pin(sleep(keep_alive)));
                std::task::ready!(quiet.as_mut().poll(cx));
                Bytes::from_static(b":\n\n")
            }
        };
        self.quiet = None;
        Poll::Ready(Some(Ok(Frame::data(text))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn events_as_they_are_sent() {
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
    fn the_response_says_what_it_is() {
        let reply = testing::get(
            async |request: Request| {
                let (events, response) = channel(&request);
                events.send(Event::data("a")).await.expect("there is room");
                response
            },
            "/",
        );
        reply.assert_text("data: a\n\n");
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        assert_eq!(reply.header("cache-control"), Some("no-cache"));
    }
}
