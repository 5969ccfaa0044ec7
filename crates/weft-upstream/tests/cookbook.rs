//! The recipe "A gateway" of docs/cookbook.md, which tests of weft-http cannot run.

use std::time::Duration;

use weft::middleware::RateLimit;
use weft::testing::{self, TestServer};
use weft::{Application, Request};
use weft_upstream::ReverseProxy;

fn gateway(upstream: &str) -> weft::Result<impl Application + Clone + Send + 'static> {
    let proxy = ReverseProxy::new(upstream)?; // such as http://127.0.0.1:3000
    Ok(weft::stack(proxy).with(RateLimit::new(100, Duration::from_secs(1))))
}

#[test]
fn gateway_of_the_cookbook_forwards_requests() {
    let upstream = TestServer::start(async |request: Request| request.path().to_owned());
    testing::get(gateway(&upstream.url("/")).unwrap(), "/a").assert_text("/a");
    assert!(gateway("no URL").is_err());

    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cookbook.md");
    let page = std::fs::read_to_string(page).unwrap();
    let recipe =
        page.split_once("## A gateway").unwrap().1.split_once("```rust,ignore\n").unwrap().1;
    let recipe = recipe.split_once("```").unwrap().0;
    assert!(include_str!("cookbook.rs").contains(recipe), "the recipe differs:\n{recipe}");
}
