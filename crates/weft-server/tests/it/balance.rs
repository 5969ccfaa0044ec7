//! Selection of one of several upstreams by the program.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use weft::testing::TestServer;
use weft::{Request, Response};

use crate::common::{Client, Weft, weft};

/// Starts the program with a route to `upstreams`.
fn serve(route: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "listen = \"127.0.0.1:0\"\nworkers = 2\nlog.access = \"none\"\n[hosts.\"*\"]\n\"/\" = {route}\n"
    );
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]));
    (folder, server)
}

/// Starts upstreams that respond with their number.
fn numbered(count: usize) -> Vec<TestServer> {
    let start = |number: usize| {
        TestServer::start(async move |_: Request| Response::text(number.to_string()))
    };
    (0..count).map(start).collect()
}

fn get(server: &Weft, target: &str) -> String {
    String::from_utf8(Client::tcp(server.address()).get(target).body).unwrap()
}

#[test]
fn equal_hash_keys_reach_the_same_upstream() {
    let mut upstreams = numbered(4);
    let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url("/")).collect();
    let route = |urls: &[String]| {
        let urls = urls.join(" ");
        format!(
            "{{ proxy = \"{urls}\", balance = \"hash\", hash_key = \"{{query.k}}\", max_failures = 1 }}"
        )
    };
    let (_folder, server) = serve(&route(&urls));
    // Another server, which has the upstreams in another order.
    let reversed: Vec<String> = urls.iter().rev().cloned().collect();
    let (_other_folder, other) = serve(&route(&reversed));
    let owners = |server: &Weft| -> Vec<String> {
        (0..40).map(|key| get(server, &format!("/?k={key}"))).collect()
    };
    let before = owners(&server);
    assert_eq!(before, owners(&server));
    assert_eq!(before, owners(&other));
    for number in 0..4 {
        assert!(before.contains(&number.to_string()), "{number} in {before:?}");
    }
    drop(upstreams.pop());
    for (before, after) in before.iter().zip(owners(&server)) {
        assert!(if before == "3" { after != "3" } else { *before == after }, "{before} {after}");
    }
    // Without a key, requests take turns.
    let turns: std::collections::BTreeSet<String> = (0..40).map(|_| get(&server, "/")).collect();
    assert_eq!(turns.into_iter().collect::<Vec<_>>(), ["0", "1", "2"]);
}
