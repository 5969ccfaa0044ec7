use std::future::poll_fn;
use std::task::Poll;

use shuttle::future::block_on;
use shuttle::sync::Arc;
use shuttle::thread;

use crate::pipe::{Pipe, PipeEvent, Pushed, RecvEnd};
use crate::ready_queue::ReadyQueue;
use crate::stand_ins::coin;

const STREAM: u64 = 1;

/// The connection's side of one stream.
struct Connection {
    ready: Arc<ReadyQueue>,
    pipe: Pipe,
}

impl Connection {
    fn new() -> Connection {
        let ready = Arc::<ReadyQueue>::default();
        Connection { pipe: Pipe::new(STREAM, ready.clone()), ready }
    }

    /// Waits until the stream must be processed.
    fn wait(&self) {
        assert_eq!(wait(&self.ready), [STREAM], "each stream occurs once");
    }
}

/// Waits until streams must be processed.
fn wait(ready: &ReadyQueue) -> Vec<u64> {
    block_on(poll_fn(|cx| match ready.take(cx) {
        streams if streams.is_empty() => Poll::Pending,
        streams => Poll::Ready(streams),
    }))
}

/// Reads until the end; returns the bytes, or `None` after a reset.
fn read_to_end(pipe: &Pipe) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        match block_on(poll_fn(|cx| pipe.poll_next(cx))) {
            PipeEvent::Data(data) => bytes.extend_from_slice(&data),
            PipeEvent::End(_) => return Some(bytes),
            PipeEvent::Reset => return None,
        }
    }
}

/// Pieces of small, tiny and large size, recognizable by their bytes.
fn pieces() -> Vec<Vec<u8>> {
    let lengths = [1, 2000, 10, 900, 9000, 1];
    lengths.iter().zip(b'a'..).map(|(&length, byte)| vec![byte; length]).collect()
}

/// All data arrives in order, and reading opens the window again: the connection has a window of
/// the largest piece, and waits until enough is read.
pub fn delivers_the_body() {
    let connection = Connection::new();
    let pipe = connection.pipe.clone();
    let reader = thread::spawn(move || read_to_end(&pipe));
    let mut window = 9000;
    for piece in pieces() {
        while window < piece.len() {
            connection.wait();
            window += connection.pipe.take_read();
        }
        assert!(matches!(connection.pipe.push(&piece), Pushed::Kept));
        window -= piece.len();
    }
    connection.pipe.end(RecvEnd::Complete(None));
    assert_eq!(reader.join().unwrap(), Some(pieces().concat()));
    assert_eq!(window + connection.pipe.take_read(), 9000, "the window is whole again");
    assert!(connection.pipe.check_finished());
}

/// The connection is notified when all data was read or the reader is closed, and every received
/// byte is accounted for.
pub fn reports_a_finished_pipe() {
    let connection = Connection::new();
    let pipe = connection.pipe.clone();
    let closes_early = coin();
    let reader = thread::spawn(move || {
        match closes_early {
            true => drop(block_on(poll_fn(|cx| pipe.poll_next(cx)))),
            false => drop(read_to_end(&pipe)),
        }
        pipe.close_reader();
    });
    let mut discarded = 0;
    for piece in pieces() {
        match connection.pipe.push(&piece) {
            Pushed::Kept => {}
            Pushed::Discarded => discarded += piece.len(),
            Pushed::TooSmall => unreachable!("few pieces are tiny"),
        }
    }
    connection.pipe.end(RecvEnd::Complete(None));
    while !connection.pipe.check_finished() {
        connection.wait();
    }
    let reopened = connection.pipe.reopen_reader();
    assert_eq!(reopened, discarded);
    assert_eq!(connection.pipe.clear() + discarded, pieces().concat().len());
    reader.join().unwrap();
}

/// All bytes that tunnels write are taken in order, though they exceed the buffer of each and the
/// budget of all. Afterwards the budget is whole again.
pub fn delivers_tunneled_data() {
    const BUFFER: usize = 32 << 10;
    let ready = Arc::<ReadyQueue>::default();
    let data: Vec<u8> = (0..40_000).map(|n| (n / 1000) as u8).collect();
    let pipes = [1, 3, 5].map(|stream| Pipe::new(stream, ready.clone()));
    let writers = pipes.clone().map(|pipe| {
        let data = data.clone();
        thread::spawn(move || {
            let mut rest = &data[..];
            while !rest.is_empty() {
                let sent = block_on(poll_fn(|cx| pipe.poll_send(cx, rest)));
                rest = &rest[sent.expect("the tunnel is open")..];
            }
            assert!(pipe.finish());
        })
    });
    let mut taken = [const { Vec::new() }; 3];
    let mut has_ended = [false; 3];
    while has_ended.contains(&false) {
        for stream in wait(&ready) {
            let index = stream as usize / 2;
            // Data is framed before the next call.
            loop {
                let (bytes, is_last) = pipes[index].take_outgoing();
                taken[index].extend_from_slice(&bytes);
                has_ended[index] |= is_last;
                if bytes.is_empty() {
                    break;
                }
            }
        }
    }
    assert!(taken.iter().all(|taken| *taken == data));
    for writer in writers {
        writer.join().unwrap();
    }
    drop(pipes);
    let mut held = Vec::new();
    for stream in [7, 9] {
        let pipe = Pipe::new(stream, ready.clone());
        let sent = block_on(poll_fn(|cx| pipe.poll_send(cx, &[0; 2 * BUFFER])));
        assert_eq!(sent, Some(BUFFER));
        held.push(pipe);
    }
}

/// A reset wakes a reader and a writer that wait.
pub fn reset_ends_both_directions() {
    let connection = Connection::new();
    let [reading, writing] = [connection.pipe.clone(), connection.pipe.clone()];
    let reader = thread::spawn(move || assert!(read_to_end(&reading).is_none()));
    let writer = thread::spawn(move || {
        while block_on(poll_fn(|cx| writing.poll_send(cx, &[0; 9000]))).is_some() {}
        assert!(!writing.finish());
    });
    if coin() {
        connection.wait();
        connection.pipe.take_outgoing();
        connection.pipe.take_outgoing();
    }
    connection.pipe.end(RecvEnd::Reset);
    reader.join().unwrap();
    writer.join().unwrap();
}
