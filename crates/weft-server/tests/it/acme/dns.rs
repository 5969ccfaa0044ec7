//! Validations by the DNS.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, mpsc};

use serde_json::json;

use super::Site;
use super::authority::{Authority, AuthoritySettings};
use crate::common::external::{curl, run_successfully};
use crate::common::{raw_upstream, read_head, until};

/// Writes a program that changes the records of the authority's DNS server, and logs its arguments.
fn write_program(site: &Site) {
    let path = site.folder.path().join("dns");
    let text = format!(
        r#"#!/bin/sh
echo "$WEFT_DNS_CHANGE $1 $2" >> "$0.log"
case $WEFT_DNS_CHANGE in add) path=set-txt ;; *) path=clear-txt ;; esac
exec curl --silent --show-error --fail --noproxy '*' \
    --data "{{\"host\": \"$1.\", \"value\": \"$2\"}}" "http://{}/$path"
"#,
        site.authority.dns_management()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
}

/// A wildcard, and a name that the authority cannot connect to.
#[test]
fn program_sets_records_and_removes_them() {
    let authority = Authority::start(AuthoritySettings::default());
    let keys = "dns_program = \"dns\"\ndns_delay = \"1ms\"";
    let Some(site) = Site::new(authority, "*.example.org shop.example.net", keys) else { return };
    write_program(&site);
    let server = site.start();
    for host in ["a.example.org", "b.example.org", "shop.example.net"] {
        until("the certificate is trusted", || site.get(host) == Ok("served\n".to_owned()));
    }
    assert!(site.state("certificates/*.example.org/certificate.pem").exists());
    let log = || fs::read_to_string(site.folder.path().join("dns.log")).unwrap();
    let records = |change: &str| {
        let mut records: Vec<_> =
            log().lines().filter_map(|line| Some(line.strip_prefix(change)?.to_owned())).collect();
        records.sort();
        records
    };
    until("the records are removed", || records("add ") == records("remove "));
    let names = ["_acme-challenge.example.org ", "_acme-challenge.shop.example.net "];
    assert!(names.iter().all(|name| records("add ").iter().any(|it| it.starts_with(name))));
    server.stop();
}

#[test]
fn failures_of_the_program_are_logged() {
    let authority = Authority::start(AuthoritySettings::default());
    let keys = "dns_program = \"dns\"";
    let Some(site) = Site::new(authority, "*.example.org", keys) else { return };
    let server = site.start();
    until("the missing program is logged", || {
        server.stderr().contains("dns-01: cannot run") && server.stderr().contains("No such file")
    });
    let path = site.folder.path().join("dns");
    fs::write(&path, "#!/bin/sh\necho no such zone >&2\nexit 1\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    until("the program's words are logged", || {
        server.stderr().contains("failed (exit status: 1): no such zone; next attempt in")
    });
    server.stop();
}

/// A name and its wildcard have records of the same name at a time.
#[test]
fn updates_of_a_dns_server_set_records_and_remove_them() {
    let settings = AuthoritySettings { zone: Some("example.org"), ..AuthoritySettings::default() };
    let Some(authority) = Authority::start(settings) else { return };
    let (server, key) = (authority.dns, authority.dns_key());
    let keys = format!("dns_server = \"{server}\"\ndns_key = \"{key}\"\ndns_delay = \"1ms\"");
    let hosts = "*.example.org example.org other.example";
    let Some(site) = Site::new(Some(authority), hosts, &keys) else { return };
    let server = site.start();
    for host in ["a.example.org", "example.org"] {
        until("the certificate is trusted", || site.get(host) == Ok("served\n".to_owned()));
    }
    until("the other zone is refused", || {
        server.stderr().contains("it is not authoritative for _acme-challenge.other.example")
    });
    let changes = |text: &str| site.authority.logged(text);
    until("the records are removed", || {
        let added = changes("adding an RR at '_acme-challenge.example.org' TXT");
        added >= 2 && added == changes("deleting an RR at _acme-challenge.example.org TXT")
    });
    server.stop();
}

#[test]
fn refused_updates_are_logged() {
    let settings = AuthoritySettings { zone: Some("example.org"), ..AuthoritySettings::default() };
    let Some(authority) = Authority::start(settings) else { return };
    let server = authority.dns;
    let keys = format!("dns_server = \"{server}\"\ndns_key = \"dns.key\"");
    let Some(site) = Site::new(Some(authority), "example.org", &keys) else { return };
    let write_key = |name: &str, secret: &str| {
        let text = format!("key {name} {{ algorithm hmac-sha256; secret \"{secret}\"; }};");
        fs::write(site.folder.path().join("dns.key"), text).unwrap();
    };
    write_key("weft", "b3RoZXI=");
    let server = site.start();
    until("the other secret is logged", || server.stderr().contains("BADSIG"));
    write_key("other", "b3RoZXI=");
    until("the other key is logged", || server.stderr().contains("BADKEY"));
    server.stop();
}

/// Changes the records of the authority's DNS server.
fn change_dns(management: SocketAddr, path: &str, body: &serde_json::Value) {
    let url = format!("http://{management}/{path}");
    run_successfully(curl().args(["--fail", "--data", &body.to_string(), &url]));
}

/// Reads a request with a body.
fn read_request(stream: &mut TcpStream) -> (String, serde_json::Value) {
    let head = read_head(stream).unwrap().to_ascii_lowercase();
    let length = head.split_once("content-length: ").unwrap().1.split_once('\r').unwrap().0;
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

/// A stand-in of the acme-dns server sets the record to which the name is delegated.
#[test]
fn acme_dns_server_sets_records() {
    let Some(authority) = Authority::start(AuthoritySettings::default()) else { return };
    let management = authority.dns_management();
    let (sender, received) = mpsc::channel();
    let sender = Mutex::new(sender);
    let acme_dns = raw_upstream(move |_, mut stream| {
        let (head, body) = read_request(&mut stream);
        let record = json!({ "host": "sub.auth.example.", "value": body["txt"] });
        change_dns(management, "set-txt", &record);
        sender.lock().unwrap().send((head, body)).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
    });
    let keys = format!(
        "acme_dns = \"http://{acme_dns}/\"\nacme_dns_accounts = \"accounts.json\"\n\
         dns_delay = \"1ms\""
    );
    let Some(site) = Site::new(Some(authority), "*.example.org", &keys) else { return };
    let accounts = r#"{"example.org": {"username": "u1", "password": "p1", "subdomain": "sub"}}"#;
    fs::write(site.folder.path().join("accounts.json"), accounts).unwrap();
    let delegation =
        json!({ "host": "_acme-challenge.example.org.", "target": "sub.auth.example." });
    change_dns(management, "set-cname", &delegation);
    let server = site.start();
    until("the certificate is trusted", || site.get("a.example.org").is_ok());
    let (head, body) = received.recv().unwrap();
    assert!(head.starts_with("post /update http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nx-api-user: u1\r\n"), "{head}");
    assert!(head.contains("\r\nx-api-key: p1\r\n"), "{head}");
    assert_eq!(body["subdomain"], "sub");
    server.stop();
}

/// The log has the record that the operator has to set.
#[test]
fn persistent_record_validates_a_wildcard() {
    let authority = Authority::start(AuthoritySettings::default());
    let keys = "challenges = [\"dns-persist-01\"]";
    let Some(site) = Site::new(authority, "*.example.org", keys) else { return };
    let server = site.start();
    let record = "set the record _validation-persist.example.org TXT \"";
    until("the record is logged", || server.stderr().contains(record));
    let log = server.stderr();
    let value = log.split_once(record).unwrap().1.split_once('"').unwrap().0.to_owned();
    assert!(value.starts_with("pebble.letsencrypt.org; accounturi=https://"), "{value}");
    assert!(value.ends_with("; policy=wildcard"), "{value}");
    let record = json!({ "host": "_validation-persist.example.org.", "value": value });
    change_dns(site.authority.dns_management(), "set-txt", &record);
    until("the certificate is trusted", || site.get("a.example.org").is_ok());
    server.stop();
}
