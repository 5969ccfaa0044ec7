//! Scheduling of the next read after the send: `schedule ADDRESS WORKERS VARIANT`.
//!
//! - `read`: reads immediately, which usually fails, and then waits;
//! - `yield`: yields to the other connections, as Warp does, and then reads;
//! - `wait`: reads only after the kernel has reported readiness.

use peer::CANNED;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn main() {
    peer::on_each_worker(serve);
}

async fn serve(listener: TcpListener) {
    let variant = weft_experiments::variant();
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        match variant.as_str() {
            "read" => tokio::spawn(read(socket)),
            "yield" => tokio::spawn(yielding(socket)),
            "wait" => tokio::spawn(wait(socket)),
            other => panic!("unknown variant {other:?}"),
        };
    }
}

async fn read(mut socket: TcpStream) {
    while next(&socket).await > 0 && socket.write_all(CANNED.as_bytes()).await.is_ok() {}
}

async fn yielding(mut socket: TcpStream) {
    while next(&socket).await > 0 && socket.write_all(CANNED.as_bytes()).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

/// tokio's own `read` clears the readiness after a short read, which has drained the socket.
async fn wait(mut socket: TcpStream) {
    let mut input = [0; 4096];
    while let Ok(1..) = socket.read(&mut input).await
        && socket.write_all(CANNED.as_bytes()).await.is_ok()
    {}
}

/// Reads, and waits for readiness only if no input is available. Returns 0 at the end.
async fn next(socket: &TcpStream) -> usize {
    let mut input = [0; 4096];
    loop {
        match socket.try_read(&mut input) {
            Ok(length) => return length,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if socket.readable().await.is_err() {
                    return 0;
                }
            }
            Err(_) => return 0,
        }
    }
}
