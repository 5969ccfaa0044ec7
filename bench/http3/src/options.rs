//! The command line of the load client.

use std::net::SocketAddr;
use std::path::PathBuf;

use lexopt::prelude::*;

pub const HELP: &str = "\
Requests a file over HTTP/3 and verifies all bytes of each response.

usage: http3-load ADDRESS PATH FILE [OPTION]...

  --connections N   connections (64)
  --streams N       requests in progress on each connection (1)
  --seconds N       duration of the measurement (3)
  --requests N      ends after this number of requests instead
  --warm-up MS      time before the measurement, after the handshakes (500)
  --handshakes      each request has a connection of its own
  --resume          these connections resume the session of an earlier one
  --idle            after one request on each connection, keeps all open until the end of its input
  --mtu N           largest UDP payload in both directions (1452)

Prints `begin` before and `end KEY=VALUE...` after the measured part, and exits at the end of its input.
";

pub struct Options {
    pub address: SocketAddr,
    pub path: String,
    pub file: PathBuf,
    pub connections: usize,
    pub streams: usize,
    pub seconds: f64,
    pub requests: Option<u64>,
    pub warm_up_ms: u64,
    pub handshakes: bool,
    pub resume: bool,
    pub idle: bool,
    pub mtu: u16,
}

pub fn read() -> Result<Options, lexopt::Error> {
    let mut options = Options {
        address: SocketAddr::from(([127, 0, 0, 1], 443)),
        path: String::new(),
        file: PathBuf::new(),
        connections: 64,
        streams: 1,
        seconds: 3.0,
        requests: None,
        warm_up_ms: 500,
        handshakes: false,
        resume: false,
        idle: false,
        mtu: 1452,
    };
    let (mut arguments, mut position) = (lexopt::Parser::from_env(), 0);
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("connections") => options.connections = arguments.value()?.parse()?,
            Long("streams") => options.streams = arguments.value()?.parse()?,
            Long("seconds") => options.seconds = arguments.value()?.parse()?,
            Long("requests") => options.requests = Some(arguments.value()?.parse()?),
            Long("warm-up") => options.warm_up_ms = arguments.value()?.parse()?,
            Long("handshakes") => options.handshakes = true,
            Long("resume") => options.resume = true,
            Long("idle") => options.idle = true,
            Long("mtu") => options.mtu = arguments.value()?.parse()?,
            Long("help") => {
                print!("{HELP}");
                std::process::exit(0);
            }
            Value(value) => {
                match position {
                    0 => options.address = value.parse()?,
                    1 => options.path = value.string()?,
                    2 => options.file = value.into(),
                    _ => return Err(Value(value).unexpected()),
                }
                position += 1;
            }
            _ => return Err(argument.unexpected()),
        }
    }
    if position < 3 {
        return Err("the address, the path or the file is missing".into());
    }
    Ok(options)
}
