//! The version of HTTP that is spoken to an upstream.

use std::fs;

use super::*;
use crate::common::{Weft, weft};

/// Returns the version of a response in `Via`, or its status.
fn version(proxy: &Proxy) -> String {
    let mut client = Client::tcp(proxy.address());
    let response = client.get("/a.txt");
    match response.header("via") {
        Some(via) => via.to_owned(),
        None => response.status.to_string(),
    }
}

#[test]
fn uses_the_version_that_is_set_or_negotiated() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(file("site")).unwrap();
    fs::write(file("site/a.txt"), "A\n").unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(file("crt"), certified.cert.pem()).unwrap();
    fs::write(file("key"), certified.signing_key.serialize_pem()).unwrap();
    for is_enabled in [true, false] {
        let (crt, key) = (file("crt"), file("key"));
        let listen = format!("unix:{}", file(if is_enabled { "two" } else { "one" }));
        let mut command = weft([file("site")]);
        command.args(["--tls-cert", &crt, "--tls-key", &key, "--tls-listen", "127.0.0.1:0"]);
        command.args(["--listen", &listen]);
        if !is_enabled {
            command.arg("--no-http2");
        }
        let upstream = Weft::start(&mut command);
        let https = format!("https://localhost:{}/", upstream.tls_address().port());
        for (url, version_setting, with_http2, without_http2) in [
            (&https, "1.1", "1.1 weft", "1.1 weft"),
            (&https, "2", "2 weft", "502"),
            (&https, "auto", "2 weft", "1.1 weft"),
            (&listen, "1.1", "1.1 weft", "1.1 weft"),
            (&listen, "2", "2 weft", "502"),
            (&listen, "auto", "1.1 weft", "1.1 weft"),
        ] {
            let options = format!("http_version = \"{version_setting}\", ca = \"{crt}\"");
            let proxy = Proxy::start(url, &options);
            let expected = if is_enabled { with_http2 } else { without_http2 };
            for number in 0..3 {
                assert_eq!(
                    version(&proxy),
                    expected,
                    "{url} {version_setting:?}, request {number}"
                );
            }
        }
        upstream.stop();
    }
}
