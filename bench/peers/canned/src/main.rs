//! Upstream servers with canned responses: `peer-canned ADDRESS WORKERS grpc MESSAGES|fastcgi`.
//!
//! The server of gRPC sends the messages of a response as grpc-go does if a method has them ready: in
//! a DATA frame each, and in writes of 32 KiB. Each connection has a thread.

mod fastcgi;
mod grpc;

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

fn main() -> io::Result<()> {
    let usage = "usage: peer-canned ADDRESS WORKERS grpc MESSAGES|fastcgi";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [address, _, "grpc", messages] => {
            let response = grpc::Response::new(messages.parse().expect(usage));
            let response = Arc::new(response);
            serve(address, move |socket| grpc::serve(socket, &response))
        }
        [address, _, "fastcgi"] => fastcgi::serve(address),
        _ => panic!("{usage}"),
    }
}

fn serve(
    address: &str,
    connection: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<()> {
    for socket in TcpListener::bind(address)?.incoming() {
        let (socket, connection) = (socket?, connection.clone());
        socket.set_nodelay(true)?;
        // An error is the end of a connection.
        thread::spawn(move || connection(socket));
    }
    Ok(())
}
