//! Head and body in one packet or two: `packets ADDRESS WORKERS VARIANT`.
//!
//! - `one`: both in one system call;
//! - `two`: in two system calls. Nagle's algorithm delays the body until the client has
//!   acknowledged the head, and the client delays its acknowledgment;
//! - `two-nodelay`: the same without Nagle's algorithm.

use peer::{CANNED, PAGE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn main() {
    peer::on_each_worker(serve);
}

async fn serve(listener: TcpListener) {
    let variant = weft_experiments::variant();
    let head = CANNED.len() - PAGE.len();
    let (first, nodelay) = match variant.as_str() {
        "one" => (CANNED.len(), false),
        "two" => (head, false),
        "two-nodelay" => (head, true),
        other => panic!("unknown variant {other:?}"),
    };
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        socket.set_nodelay(nodelay).expect("TCP_NODELAY");
        tokio::spawn(respond(socket, first));
    }
}

async fn respond(mut socket: TcpStream, first: usize) {
    let (first, second) = CANNED.as_bytes().split_at(first);
    let mut input = [0; 4096];
    while let Ok(1..) = socket.read(&mut input).await {
        let sent = async {
            socket.write_all(first).await?;
            socket.write_all(second).await
        };
        if sent.await.is_err() {
            return;
        }
    }
}
