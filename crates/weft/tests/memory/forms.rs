//! Memory use of a large upload that is stored in a temporary file.

use crate::common::{Client, stop};
use crate::{PeakMemory, has_run_alone};
use weft::{Error, Request, Response, Server, Settings, form};

#[test]
fn storing_200_megabytes_uses_constant_memory() {
    if has_run_alone() {
        return;
    }
    let mut memory = PeakMemory::begin();
    let app = async |request: Request| {
        let settings = form::FormSettings { max_file_bytes: 1 << 30, ..Default::default() };
        let mut form = settings.multipart(request)?;
        let part = form.next().await?.expect("a file");
        let length = part.into_file().await?.length();
        assert!(form.next().await?.is_none());
        Ok::<_, Error>(Response::text(length.to_string()))
    };
    let settings = Settings { max_body_bytes: 1 << 30, ..Settings::default() };
    let server = Server::new(app).settings(settings).workers(1);
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    // Many carriage returns, each a possible start of a boundary.
    let block = b"\r\nxxxxxxxxxxxxx\r".repeat(1 << 16);
    let (blocks, end) = (200, "\r\n--x--\r\n");
    let begin = "--x\r\nContent-Disposition: form-data; name=a; filename=f\r\n\r\n";
    let length = begin.len() + blocks * block.len() + end.len();
    let head =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=\"x\"\r\n";
    let mut client =
        Client::connect_and_send(&server, format!("{head}Content-Length: {length}\r\n\r\n{begin}"));
    memory.reset();
    for _ in 0..blocks {
        client.send(&block);
    }
    client.send(end);
    assert_eq!(client.response().text(), (blocks * block.len()).to_string());
    let grown = memory.peak();
    assert!(grown < 16 << 20, "memory use grew by {grown} bytes");
    stop(server);
}
