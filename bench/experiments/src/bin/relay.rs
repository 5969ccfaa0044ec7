//! Forwarding bytes from one socket to another: read into memory and sent, or moved within the kernel by
//! `splice(2)`. Prints the CPU time of the forwarding thread per GiB.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml -p weft-experiments --bin relay`

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use rustix::net::{RecvFlags, recv};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use weft_experiments::cpu_nanoseconds;

const ROUNDS: usize = 9;
const BYTES: u64 = 1 << 30;

/// A name, the bytes that a sender writes at a time, and the function that forwards until the end.
type Candidate = (&'static str, usize, fn(&mut TcpStream, &mut TcpStream));

const CANDIDATES: &[Candidate] = &[
    ("64 KiB: read and send, buffer of 16 KiB", 64 << 10, |from, to| copy(from, to, 16 << 10)),
    ("64 KiB: read and send, buffer of 64 KiB", 64 << 10, |from, to| copy(from, to, 64 << 10)),
    ("64 KiB: splice, pipe of 64 KiB", 64 << 10, |from, to| splice_all(from, to, 64 << 10)),
    ("64 KiB: splice, pipe of 1 MiB", 64 << 10, |from, to| splice_all(from, to, 1 << 20)),
    ("1 KiB: read and send, buffer of 16 KiB", 1 << 10, |from, to| copy(from, to, 16 << 10)),
    ("1 KiB: splice, pipe of 64 KiB", 1 << 10, |from, to| splice_all(from, to, 64 << 10)),
];

fn main() {
    let mut times = vec![Vec::new(); CANDIDATES.len()];
    for round in 0..ROUNDS {
        for index in 0..CANDIDATES.len() {
            let index = (index + round) % CANDIDATES.len();
            let (_, written, forward) = CANDIDATES[index];
            times[index].push(measure(written, forward));
        }
    }
    println!("| writes of the sender, way of forwarding | ms of CPU time per GiB | lowest, highest |");
    println!("| --- | --- | --- |");
    for ((name, ..), mut samples) in CANDIDATES.iter().zip(times) {
        samples.sort_by(f64::total_cmp);
        let (low, median, high) = (samples[0], samples[ROUNDS / 2], samples[ROUNDS - 1]);
        println!("| {name} | {median:.0} | {low:.0} – {high:.0} |");
    }
}

/// Sends bytes through a forwarding thread, and returns the milliseconds of its CPU time per GiB.
fn measure(written: usize, forward: fn(&mut TcpStream, &mut TcpStream)) -> f64 {
    let (mut sender, mut from) = connection();
    let (mut to, receiver) = connection();
    let bytes = if written < 16 << 10 { BYTES / 16 } else { BYTES };
    let sending = thread::spawn(move || {
        let content = vec![b'x'; written];
        for _ in 0..bytes / written as u64 {
            sender.write_all(&content).expect("the forwarding thread reads");
        }
    });
    let receiving = thread::spawn(move || drain(&receiver));
    let forwarding = thread::spawn(move || {
        let before = cpu_nanoseconds();
        forward(&mut from, &mut to);
        cpu_nanoseconds() - before
    });
    let nanoseconds = forwarding.join().expect("the bytes are forwarded");
    sending.join().expect("the bytes are sent");
    assert_eq!(receiving.join().expect("the bytes are received"), bytes);
    nanoseconds as f64 / 1e6 * (BYTES / bytes) as f64
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let client = TcpStream::connect(address).expect("the listener accepts");
    let (server, _) = listener.accept().expect("a connection");
    for socket in [&client, &server] {
        socket.set_nodelay(true).expect("TCP_NODELAY");
    }
    (client, server)
}

/// Discards all bytes without copying them, and returns their number.
fn drain(socket: &TcpStream) -> u64 {
    let mut total = 0;
    loop {
        let mut buffer = [0; 1 << 20];
        match recv(socket, &mut buffer[..], RecvFlags::TRUNC).expect("the sender closes in order").1 {
            0 => return total,
            received => total += received as u64,
        }
    }
}

fn copy(from: &mut TcpStream, to: &mut TcpStream, size: usize) {
    let mut buffer = vec![0; size];
    loop {
        match from.read(&mut buffer).expect("the sender closes in order") {
            0 => return,
            read => to.write_all(&buffer[..read]).expect("the receiver reads"),
        }
    }
}

fn splice_all(from: &mut TcpStream, to: &mut TcpStream, size: usize) {
    let (output, input) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    fcntl_setpipe_size(&input, size).expect("a pipe of this size");
    loop {
        let received =
            splice(&*from, None, &input, None, size, SpliceFlags::MOVE).expect("a socket and a pipe");
        if received == 0 {
            return;
        }
        let mut remaining = received;
        while remaining > 0 {
            let sent = splice(&output, None, &*to, None, remaining, SpliceFlags::MOVE);
            remaining -= sent.expect("a pipe and a socket");
        }
    }
}
