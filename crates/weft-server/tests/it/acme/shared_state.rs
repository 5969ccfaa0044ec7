//! Changes of the names by a reload, and of the files by another process.

use std::fs;
use std::path::Path;

use super::authority::{Authority, AuthoritySettings};
use super::{Site, UNTRUSTED};
use crate::common::external::curl;
use crate::common::{Signal, Weft, until, weft};

#[test]
fn reloads_add_and_remove_names() {
    let authority = Authority::start(AuthoritySettings::default());
    let Some(site) = Site::new(authority, "a.example b.example", "") else { return };
    let server = site.start();
    for name in ["a.example", "b.example"] {
        until("the first names are trusted", || site.get(name).is_ok());
    }
    let text = fs::read_to_string(site.config()).unwrap();
    fs::write(site.config(), text.replace("\"a.example b.example\"", "\"b.example c.example\""))
        .unwrap();
    server.signal(Signal::HUP);
    until("the new name is trusted", || site.get("c.example").is_ok());
    assert!(site.get("b.example").is_ok());
    // Its certificate is stored, but not presented any more.
    assert!(site.state("certificates/a.example/certificate.pem").exists());
    assert_eq!(site.get("a.example"), Err(UNTRUSTED));
    assert_eq!(site.authority.logged("Added order"), 3);
    server.stop();
}

/// The second process listens on ports that the authority does not validate.
#[test]
fn processes_share_their_certificates() {
    let authority = Authority::start(AuthoritySettings::default());
    let Some(site) = Site::new(authority, "example.org", "") else { return };
    let text = fs::read_to_string(site.config()).unwrap();
    let (http, tls) = (site.authority.http, site.authority.tls);
    let text =
        text.replace(&http.to_string(), "127.0.0.1:0").replace(&tls.to_string(), "127.0.0.1:0");
    let file = site.folder.path().join("second.toml");
    fs::write(&file, text.replace("weft.pid", "second.pid")).unwrap();
    let first = site.start();
    until("the first process has an account", || first.stderr().contains("created an account"));
    let second = Weft::start(weft([Path::new("--config"), &file]).arg("--no-log"));
    until("the certificate is trusted", || site.get("example.org").is_ok());
    let address = second.tls_address();
    until("the second process presents it", || {
        let output = curl()
            .args(["--silent", "--cacert"])
            .arg(site.authority.root())
            .args(["--resolve", &format!("example.org:{}:127.0.0.1", address.port())])
            .arg(format!("https://example.org:{}/", address.port()))
            .output();
        output.unwrap().stdout == b"served\n"
    });
    assert_eq!(site.authority.logged("Added order"), 1, "{}", second.stderr());
    second.stop();
    first.stop();
}
