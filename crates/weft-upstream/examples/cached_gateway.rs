//! A gateway with a response cache: `cargo run -p weft-upstream --example cached_gateway --
//! http://127.0.0.1:3000 127.0.0.1:8080`, then `curl -i http://127.0.0.1:8080/` several times.

use weft::cache::{Cache, Store};
use weft_upstream::{ProxySettings, ReverseProxy};

fn main() -> weft::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let origin = arguments.next().unwrap_or_else(|| "http://127.0.0.1:3000".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let settings = ProxySettings { max_retries: 0, ..ProxySettings::new(origin)? };
    let proxy = ReverseProxy::with_settings(settings, Default::default())?;

    let store = Store::new().max_bytes(256 << 20);
    let cache = Cache::new(&store).store_cookies(std::env::var_os("STORE_COOKIES").is_some());
    println!("http://{address}/");
    weft::serve(address, cache.over(proxy))
}
