//! The second lower bound: the same as the peer `epoll`, on tokio.

use memchr::memmem;
use peer::{CANNED, on_each_worker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn main() {
    on_each_worker(serve);
}

async fn serve(listener: TcpListener) {
    loop {
        if let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(respond(socket));
        }
    }
}

async fn respond(mut socket: TcpStream) {
    let mut buffer = [0; 16 << 10];
    let mut tail = [0; 3];
    let responses = CANNED.repeat(64);
    loop {
        buffer[..3].copy_from_slice(&tail);
        let length = match socket.read(&mut buffer[3..]).await {
            Ok(0) | Err(_) => return,
            Ok(length) => 3 + length,
        };
        tail.copy_from_slice(&buffer[length - 3..length]);
        let mut heads = memmem::find_iter(&buffer[..length], b"\r\n\r\n").count();
        while heads > 0 {
            let batch = heads.min(64);
            let bytes = &responses.as_bytes()[..batch * CANNED.len()];
            if socket.write_all(bytes).await.is_err() {
                return;
            }
            heads -= batch;
        }
    }
}
