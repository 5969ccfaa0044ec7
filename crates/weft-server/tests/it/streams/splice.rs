//! Bytes that the kernel moves from one socket to the other (`splice(2)`).

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SendFlags, SocketType, socket};
use rustix::process::{Pid, Signal, kill_process};

use super::records::{lines, reset};
use super::{Streams, connect, read_to_close};
use crate::common::traced::Traced;
use crate::common::{PATIENCE, has_tool, raw_upstream, until};

const PIECE: usize = 64 << 10;

/// Content with its number at the start.
fn piece(number: usize) -> Vec<u8> {
    let mut content = vec![b'x'; PIECE];
    content[..8].copy_from_slice(&number.to_be_bytes());
    content
}

/// Starts an upstream that sends pieces to each client, and the end after them.
fn download(pieces: usize) -> SocketAddr {
    raw_upstream(move |_, mut stream| {
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        (0..pieces).for_each(|number| stream.write_all(&piece(number)).unwrap());
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    })
}

fn assert_receives(mut stream: TcpStream, pieces: usize) {
    let mut received = vec![0; PIECE];
    for number in 0..pieces {
        stream.read_exact(&mut received).unwrap();
        assert!(received == piece(number), "piece {number}");
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut received).unwrap(), 0);
}

fn config(upstream: SocketAddr) -> String {
    format!("[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\nmax_connections_per_client = 100\n")
}

/// Returns the sum of the results of a system call in a trace.
fn sum_of_results(trace: &str, name: &str) -> usize {
    let (start, resumed) = (format!(" {name}("), format!("<... {name} resumed>"));
    let lines = trace.lines().filter(|line| line.contains(&start) || line.contains(&resumed));
    let results = lines.filter_map(|line| line.rsplit_once(" = ")?.1.parse::<usize>().ok());
    results.sum()
}

#[test]
fn large_transfers_are_moved_within_the_kernel() {
    if !has_tool("strace") {
        return;
    }
    const PIECES: usize = 512;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    std::fs::write(&file, config(download(PIECES))).unwrap();
    let arguments = ["--config", file.to_str().unwrap()];
    let traced = Traced::start(&["recvfrom", "splice"], &arguments);
    let address = traced.server.addresses()[0].strip_prefix("tcp://").unwrap().parse().unwrap();
    assert_receives(connect(address), PIECES);
    // Each byte enters a pipe and leaves it. Some are copied, at first and after a pause.
    until("the trace is complete", || {
        let moved = sum_of_results(&traced.trace(), "splice") / 2;
        moved + sum_of_results(&traced.trace(), "recvfrom") >= PIECES * PIECE
    });
    let copied = sum_of_results(&traced.trace(), "recvfrom");
    assert!(copied < PIECES * PIECE / 4, "{copied} bytes were copied");
    traced.server.stop();
}

/// Pieces that are moved before a pause.
const BEFORE_PAUSE: usize = 16;

fn receive_pieces(stream: &mut TcpStream) {
    stream.read_exact(&mut vec![0; BEFORE_PAUSE * PIECE]).unwrap();
}

#[test]
fn resets_after_a_pause_end_both_directions() {
    // Resets its connection at a byte behind the pieces of the client.
    let upstream = raw_upstream(|_, mut stream| {
        (0..BEFORE_PAUSE).for_each(|number| stream.write_all(&piece(number)).unwrap());
        receive_pieces(&mut stream);
        stream.write_all(b"!").unwrap();
        match stream.read(&mut [0]) {
            Ok(1) => reset(stream),
            // The client has reset its connection.
            closed => drop(closed),
        }
    });
    let config = config(upstream);
    let streams = Streams::start(&format!("{config}access_log = \"access.log\"\n"));
    for (number, (side, end)) in
        [(b"c", " client-error "), (b"u", " upstream-error ")].repeat(3).into_iter().enumerate()
    {
        let mut stream = streams.connect();
        receive_pieces(&mut stream);
        (0..BEFORE_PAUSE).for_each(|number| stream.write_all(&piece(number)).unwrap());
        stream.read_exact(&mut [0]).unwrap();
        match side {
            b"c" => reset(stream),
            _ => {
                stream.write_all(side).unwrap();
                assert!(read_to_close(stream).is_empty());
            }
        }
        let lines = lines(&streams, number + 1);
        assert!(lines[number].contains(end), "{}", lines[number]);
    }
}

/// As without `splice(2)`, only the urgent byte is left out.
#[test]
fn bytes_behind_urgent_data_are_forwarded() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let upstream = raw_upstream(move |_, mut stream| {
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        sender.send(received).unwrap();
    });
    let streams = Streams::start(&config(upstream));
    let signal = |signal| {
        let id = Pid::from_raw(streams.server.id() as i32).unwrap();
        kill_process(id, signal).unwrap();
    };
    // All of it has arrived before the server reads.
    signal(Signal::STOP);
    let mut stream = streams.connect();
    let before = vec![b'x'; 48 << 10];
    stream.write_all(&before).unwrap();
    rustix::net::send(&stream, b"u", SendFlags::OOB).unwrap();
    stream.write_all(b"behind").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    signal(Signal::CONT);
    let received = receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(received.len(), before.len() + b"behind".len());
    assert!(received.ends_with(b"behind"));
}

/// Connects with a receive buffer that is as small as possible.
fn connect_slow_reader(address: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_recv_buffer_size(&socket, 4 << 10).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn receivers_that_do_not_read_hold_a_limited_number_of_pipes() {
    const PIECES: usize = 96;
    const CLIENTS: usize = 68;
    const MAX_PIPES: usize = 64;
    const MAX_IDLE_PIPES: usize = 8;
    let streams = Streams::start(&config(download(PIECES)));
    // Two descriptors each. Others of the server are not pipes.
    let pipes = || {
        let folder = format!("/proc/{}/fd", streams.server.id());
        let entries = std::fs::read_dir(folder).unwrap().filter_map(Result::ok);
        let targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("pipe:")).count() / 2
    };
    let before = pipes();
    let address = streams.addresses()[0];
    let clients: Vec<_> = (0..CLIENTS).map(|_| connect_slow_reader(address)).collect();
    until("all pipes are in use", || {
        let open = pipes() - before;
        assert!(open <= MAX_PIPES, "{open} pipes");
        open == MAX_PIPES
    });
    // The others are copied, and a pipe that has become empty serves another connection.
    std::thread::scope(|scope| {
        for client in clients {
            set_socket_recv_buffer_size(&client, 1 << 20).unwrap();
            scope.spawn(move || assert_receives(client, PIECES));
        }
    });
    until("few pipes stay open", || pipes() - before <= MAX_IDLE_PIPES);
}
