//! Balances over three upstreams: `cargo run -p weft-upstream --example balance`, then
//! `curl http://127.0.0.1:8080/` several times.

use std::time::Duration;

use weft::server::ServerHandle;
use weft::{Request, Response, Server};
use weft_upstream::{BalancePolicy, HealthCheck, HealthCheckTarget, ProxySettings, ReverseProxy};

/// Starts an upstream that responds with its name.
fn start_upstream(name: &'static str) -> weft::Result<ServerHandle> {
    let respond = async move |_: Request| Response::text(format!("Hello from {name}!\n"));
    Server::new(respond).workers(1).listen("127.0.0.1:0")?.start()
}

fn main() -> weft::Result<()> {
    let upstreams = [start_upstream("one")?, start_upstream("two")?, start_upstream("three")?];
    let urls = upstreams.each_ref().map(|upstream| format!("http://{}", upstream.addresses()[0]));
    let check = HealthCheck {
        interval: Duration::from_secs(5),
        ..HealthCheck::new(HealthCheckTarget::Connection)
    };
    let settings = ProxySettings {
        balance: BalancePolicy::LeastConnections,
        check: Some(check),
        max_retries: 1,
        ..ProxySettings::new(urls)?
    };
    let proxy = ReverseProxy::with_settings(settings, Default::default())?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    println!("http://{address}/");
    weft::serve(address, proxy)
}
