//! Accounts with authorities, and commands about them.

use std::fs;
use std::path::Path;

use super::Site;
use super::authority::{Authority, AuthoritySettings};
use crate::common::external::curl;
use crate::common::{run, until};

#[test]
fn binds_accounts_to_external_ones() {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let settings =
        AuthoritySettings { external_account: Some(("kid-1", key)), ..Default::default() };
    let keys = "eab_key_id = \"kid-1\"\neab_key = \"eab.key\"";
    let Some(site) = Site::new(Authority::start(settings), "example.org", keys) else { return };
    let server = site.start();
    until("the missing key is logged", || server.stderr().contains("cannot read the key"));
    fs::write(site.folder.path().join("eab.key"), "b3RoZXI=\n").unwrap();
    until("the other key is refused", || {
        server.stderr().contains("urn:ietf:params:acme:error:unauthorized")
    });
    fs::write(site.folder.path().join("eab.key"), key).unwrap();
    until("the certificate is trusted", || site.get("example.org").is_ok());
    server.stop();
}

/// The command of an account's new key, and then the commands of a certificate, which the new key
/// signs.
#[test]
fn commands_roll_over_and_revoke() {
    let authority = Authority::start(AuthoritySettings::default());
    let Some(site) = Site::new(authority, "example.org", "") else { return };
    let command = |arguments: &[&str]| {
        let config = site.config();
        let first = [Path::new("certificates"), &config];
        run(first.into_iter().chain(arguments.iter().map(Path::new)))
    };
    let output = command(&["--roll-over"]);
    assert!(output.stderr.contains("there is no account with an authority"), "{}", output.stderr);
    let server = site.start();
    until("the certificate is trusted", || site.get("example.org").is_ok());
    server.stop();
    let account = || {
        let folder = fs::read_dir(site.state("accounts")).unwrap().next().unwrap().unwrap().path();
        ["account.json", "key.pem"].map(|name| fs::read_to_string(folder.join(name)).unwrap())
    };
    let former = account();
    let output = command(&["--roll-over"]);
    assert!(output.stdout.contains("has a new key"), "{}", output.stderr);
    assert!(account().iter().zip(&former).all(|(new, former)| new != former));

    let certificate =
        || fs::read_to_string(site.state("certificates/example.org/certificate.pem")).unwrap();
    let former = certificate();
    for (arguments, expected) in [
        (&["--revoke", "other.example"][..], "other.example has no certificate"),
        (&["--revoke", "a/b"], "it is neither a domain name nor an IP address"),
        (&["--revoke", "example.org", "--reason", "x"], "expected one of unspecified, key-comp"),
        (&["--reason", "superseded"], "--reason belongs to"),
    ] {
        let output = command(arguments);
        assert!(output.stderr.contains(expected), "{arguments:?}: {}", output.stderr);
    }
    let revoke = &["--revoke", "example.org", "--reason", "superseded"];
    let output = command(revoke);
    let expected = "has revoked the certificate for example.org\n";
    assert!(output.stdout.ends_with(expected), "{}", output.stderr);
    let output = command(revoke);
    assert!(output.stderr.contains("alreadyRevoked"), "{}", output.stderr);
    let server = site.start();
    until("it is replaced", || certificate() != former);
    server.stop();
    assert_eq!(site.authority.logged("There are now 2 accounts"), 0);
}

/// After a failure, the authority gets no order until another one has issued a certificate.
#[test]
fn failures_are_followed_by_a_rehearsal() {
    let Some(authority) = Authority::prepare(AuthoritySettings::default()) else { return };
    let mut staging = Authority::beside(&authority);
    let keys = format!("staging = \"{}\"", staging.directory());
    let Some(mut site) = Site::new(Some(authority), "example.org", &keys) else { return };
    let server = site.start();
    until("the first attempt fails", || server.stderr().contains("Connection refused"));
    site.authority.run();
    until("the rehearsal fails", || server.stderr().contains(": rehearsal with https://"));
    assert_eq!(site.authority.logged("Added order"), 0);
    staging.run_without_dns();
    until("the certificate is trusted", || site.get("example.org").is_ok());
    assert_eq!((staging.logged("Added order"), site.authority.logged("Added order")), (1, 1));
    server.stop();
}

#[test]
fn orders_certificates_of_addresses() {
    let Some(authority) = Authority::start(AuthoritySettings::default()) else { return };
    let tls = authority.tls;
    let keys = format!("domains = [\"{}\"]\nprofile = \"default\"", tls.ip());
    let Some(site) = Site::new(Some(authority), "*", &keys) else { return };
    let server = site.start();
    until("the certificate is trusted", || {
        let root = site.authority.root();
        let output = curl().arg("--cacert").arg(root).arg(format!("https://{tls}/")).output();
        output.unwrap().stdout == b"served\n"
    });
    server.stop();
}

#[test]
fn unknown_profiles_are_reported_by_the_authority() {
    let authority = Authority::start(AuthoritySettings::default());
    let keys = "profile = \"shortlived\"";
    let Some(site) = Site::new(authority, "example.org", keys) else { return };
    let server = site.start();
    until("the authority's words are logged", || {
        server.stderr().contains("urn:ietf:params:acme:error:invalidProfile")
    });
    server.stop();
}
