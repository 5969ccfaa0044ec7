use std::time::Duration;

use shuttle::sync::Arc;
use shuttle::thread;

use super::output::Output;
use super::sink::{LineSender, Sink};
use crate::stand_ins::coin;

fn start() -> (Arc<Sink>, Output) {
    let output = Output::default();
    (Sink::start("model", output.clone()).unwrap(), output)
}

fn close(sink: &Arc<Sink>, output: &Output) -> (Vec<u8>, u64) {
    assert!(sink.writer().close(Duration::MAX));
    let mut written = output.written.lock().unwrap();
    assert!(written.is_finished);
    (std::mem::take(&mut written.lines), written.lost)
}

fn append(sender: &LineSender, source: u8, length: usize) {
    sender.append(|lines| lines.resize(lines.len() + length, source));
}

/// All lines are written exactly once, also the lines of dropped sources, and the lines of a source
/// in order.
pub fn writes_each_line_once() {
    let (sink, output) = start();
    let sources = [b'a', b'b'].map(|source| {
        let sender = sink.line_sender();
        thread::spawn(move || {
            for number in 0..3 {
                match coin() {
                    true => sender.append(|lines| lines.extend([source, number, b'\n'])),
                    false => sender.try_append(&format!("{}{}\n", source as char, number as char)),
                }
            }
        })
    });
    sink.writer().reopen();
    for source in sources {
        source.join().unwrap();
    }
    let (written, lost) = close(&sink, &output);
    for source in [b'a', b'b'] {
        let lines = written.chunks(3).filter(|line| line[0] == source);
        assert_eq!(lines.map(|line| line[1]).collect::<Vec<_>>(), [0, 1, 2]);
    }
    assert_eq!((written.len(), lost), (18, 0));
}

/// A source with a full buffer waits for the writer.
pub fn full_buffer_loses_no_line() {
    const LENGTH: usize = 600 << 10;
    let (sink, output) = start();
    let sender = sink.line_sender();
    for _ in 0..4 {
        append(&sender, b'a', LENGTH);
    }
    let (written, lost) = close(&sink, &output);
    assert_eq!((written.len(), lost), (4 * LENGTH, 0));
}

/// A source that waits for a blocked output continues after `stop_blocking`.
pub fn stop_blocking_releases_sources() {
    const LENGTH: usize = 1 << 20;
    let (sink, output) = start();
    *output.is_blocked.0.lock().unwrap() = true;
    let sender = sink.line_sender();
    let source = thread::spawn(move || {
        for _ in 0..3 {
            append(&sender, b'a', LENGTH);
        }
    });
    sink.writer().stop_blocking();
    source.join().unwrap();
    *output.is_blocked.0.lock().unwrap() = false;
    output.is_blocked.1.notify_all();
    assert_eq!(close(&sink, &output).0.len(), 3 * LENGTH);
}

/// A source of a lossy output drops and counts lines while the output is blocked.
pub fn lossy_source_never_waits() {
    const LENGTH: usize = 1 << 20;
    let output = Output { is_lossy: true, ..Output::default() };
    let sink = Sink::start("model", output.clone()).unwrap();
    *output.is_blocked.0.lock().unwrap() = true;
    let sender = sink.line_sender();
    for _ in 0..4 {
        append(&sender, b'a', LENGTH);
    }
    *output.is_blocked.0.lock().unwrap() = false;
    output.is_blocked.1.notify_all();
    let (written, lost) = close(&sink, &output);
    assert_eq!(written.len() / LENGTH + lost as usize, 4);
    assert!(lost >= 2);
}

/// After a reload: the writer ends when the last source is dropped, and all lines are written.
pub fn last_source_ends_the_writer() {
    let (sink, output) = start();
    let writer = sink.writer().clone();
    let sources = [b'a', b'b'].map(|source| {
        let sender = sink.line_sender();
        thread::spawn(move || {
            append(&sender, source, 1);
            append(&sender, source, 1);
        })
    });
    drop(sink);
    for source in sources {
        source.join().unwrap();
    }
    while !writer.is_finished() {
        thread::yield_now();
    }
    let written = output.written.lock().unwrap();
    assert!(written.is_finished);
    assert_eq!((written.lines.len(), written.lost), (4, 0));
}
