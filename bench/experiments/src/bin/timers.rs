//! Implementations of request timeouts: `timers ADDRESS WORKERS VARIANT`.
//!
//! - `none`: no timeout;
//! - `timer`: a tokio timer around each read and each write;
//! - `sweeper`: a store to a cell of the connection, and one task that checks all cells
//!   periodically, as in Warp and Weft.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use peer::CANNED;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

const LIMIT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(500);

fn main() {
    peer::on_each_worker(async |listener| LocalSet::new().run_until(serve(listener)).await);
}

async fn serve(listener: TcpListener) {
    let variant = weft_experiments::variant();
    let sweeper = Rc::new(Sweeper::new());
    spawn_local(sweeper.clone().run());
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        match variant.as_str() {
            "none" => spawn_local(without(socket)),
            "timer" => spawn_local(with_timers(socket)),
            "sweeper" => spawn_local(swept(socket, sweeper.deadline())),
            other => panic!("unknown variant {other:?}"),
        };
    }
}

async fn without(mut socket: TcpStream) {
    let mut input = [0; 4096];
    while let Ok(1..) = socket.read(&mut input).await
        && socket.write_all(CANNED.as_bytes()).await.is_ok()
    {}
}

async fn with_timers(mut socket: TcpStream) {
    let mut input = [0; 4096];
    while let Ok(Ok(1..)) = timeout(LIMIT, socket.read(&mut input)).await
        && let Ok(Ok(())) = timeout(LIMIT, socket.write_all(CANNED.as_bytes())).await
    {}
}

async fn swept(mut socket: TcpStream, deadline: Rc<Deadline>) {
    let mut input = [0; 4096];
    loop {
        deadline.set();
        let mut read = pin!(socket.read(&mut input));
        let length = poll_fn(|cx| match read.as_mut().poll(cx) {
            Poll::Pending => deadline.poll(cx.waker()).map(|()| 0),
            Poll::Ready(length) => Poll::Ready(length.unwrap_or(0)),
        });
        if length.await == 0 || socket.write_all(CANNED.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The deadlines of a worker, and its coarse clock.
struct Sweeper {
    clock: Rc<Cell<Instant>>,
    deadlines: RefCell<Vec<Rc<Deadline>>>,
}

struct Deadline {
    clock: Rc<Cell<Instant>>,
    due: Cell<Instant>,
    waiting: RefCell<Option<Waker>>,
}

impl Sweeper {
    fn new() -> Sweeper {
        Sweeper { clock: Rc::new(Cell::new(Instant::now())), deadlines: RefCell::default() }
    }

    fn deadline(&self) -> Rc<Deadline> {
        let (clock, due) = (self.clock.clone(), Cell::new(self.clock.get() + LIMIT));
        let deadline = Rc::new(Deadline { clock, due, waiting: RefCell::default() });
        self.deadlines.borrow_mut().push(deadline.clone());
        deadline
    }

    async fn run(self: Rc<Sweeper>) {
        loop {
            sleep(TICK).await;
            self.clock.set(Instant::now());
            self.deadlines.borrow_mut().retain(|deadline| {
                if deadline.is_over()
                    && let Some(waker) = deadline.waiting.take()
                {
                    waker.wake();
                }
                Rc::strong_count(deadline) > 1
            });
        }
    }
}

impl Deadline {
    fn set(&self) {
        self.due.set(self.clock.get() + LIMIT + TICK);
    }

    fn is_over(&self) -> bool {
        self.due.get() <= self.clock.get()
    }

    fn poll(&self, waker: &Waker) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.as_ref().is_some_and(|registered| registered.will_wake(waker)) {
            *waiting = Some(waker.clone());
        }
        Poll::Pending
    }
}
