//! HTTPS with a certificate from Let's Encrypt: `cargo run --release -p weft-acme --example https
//! -- DOMAIN`. The domain name must lead to this machine, whose ports 80 and 443 must be free and
//! reachable.

use log::{LevelFilter, Log, Metadata, Record};
use weft::{Request, Response, Server};
use weft_acme::ServerExt;

async fn hello(_: Request) -> Response {
    Response::text("Hello, world!\n")
}

/// Writes the log to stderr: that a certificate was issued, or why not.
struct StderrLog;

impl Log for StderrLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        eprintln!("{}: {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

fn main() -> weft::Result<()> {
    log::set_logger(&StderrLog).expect("there is no other logger");
    log::set_max_level(LevelFilter::Info);
    let domain = std::env::args().nth(1).expect("the argument is a domain name");
    Server::new(hello).domain(domain).run()
}
