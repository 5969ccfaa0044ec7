//! A FastCGI responder with one response for all requests.

use std::io::{self, Read, Write};
use std::net::TcpStream;

const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const END_REQUEST: u8 = 3;

const HEAD: &[u8] = b"Content-Type: text/html\r\nContent-Length: 151\r\n\r\n";
const PAGE: &[u8] = include_bytes!("../../../site/index.html");

pub fn serve(mut socket: TcpStream) -> io::Result<()> {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut buffer = [0; 64 << 10];
    loop {
        match socket.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => input.extend_from_slice(&buffer[..bytes]),
        }
        let mut used = 0;
        while let [_, kind, id_high, id_low, high, low, padding, _, rest @ ..] = &input[used..] {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let total = length + usize::from(*padding);
            if rest.len() < total {
                break;
            }
            if *kind == STDIN && length == 0 {
                respond(&mut output, [*id_high, *id_low]);
            }
            used += 8 + total;
        }
        input.drain(..used);
        socket.write_all(&output)?;
        output.clear();
    }
}

fn respond(output: &mut Vec<u8>, id: [u8; 2]) {
    record(output, STDOUT, id, &[HEAD, PAGE].concat());
    record(output, STDOUT, id, &[]);
    record(output, END_REQUEST, id, &[0; 8]);
}

fn record(output: &mut Vec<u8>, kind: u8, id: [u8; 2], content: &[u8]) {
    let length = u16::try_from(content.len()).expect("a small record").to_be_bytes();
    output.extend_from_slice(&[1, kind, id[0], id[1], length[0], length[1], 0, 0]);
    output.extend_from_slice(content);
}
