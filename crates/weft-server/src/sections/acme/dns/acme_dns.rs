//! Changes of the DNS by an acme-dns server. CNAME records delegate the names of the validations to
//! it.
//!
//! The server keeps the last two values of a name, so that no value needs to be removed.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use weft_upstream::{OwnRequest, RemoteServer};

/// Maximum size of the file with the accounts, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 4_096;

/// Time limit for a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Account for a domain, in the form in which the server returns it at the registration.
#[derive(Deserialize)]
struct DnsAccount {
    username: String,
    password: String,
    subdomain: String,
}

/// Sets the value of a domain's validation. `accounts` is a file with a JSON object of accounts by
/// domain.
///
/// # Errors
/// If there is no account for the domain, or if the server does not accept the value.
pub(super) async fn set(
    url: &str,
    accounts: &Path,
    domain: &str,
    value: &str,
) -> Result<(), String> {
    let account = account(accounts, domain)
        .map_err(|reason| format!("accounts {}: {reason}", accounts.display()))?;
    let body = serde_json::json!({ "subdomain": account.subdomain, "txt": value }).to_string();
    let failed = |reason: String| format!("{url}: {reason}");
    let server = RemoteServer::new(url.parse().map_err(failed)?, None).map_err(failed)?;
    let request = OwnRequest {
        method: &Method::POST,
        target: "/update",
        host: None,
        fields: &[
            ("x-api-user", account.username.as_bytes()),
            ("x-api-key", account.password.as_bytes()),
            ("content-type", b"application/json"),
        ],
        body: body.as_bytes(),
    };
    let response = server.send(&request, MAX_RESPONSE_BYTES, TIMEOUT).await.map_err(failed)?;
    match response.status().is_success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(response.body()).replace(char::is_control, " ");
            Err(failed(format!("{}: {}", response.status(), text.trim())))
        }
    }
}

fn account(path: &Path, domain: &str) -> Result<DnsAccount, String> {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
    read.map_err(|error| error.to_string())?;
    let accounts: HashMap<String, DnsAccount> =
        serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let found = accounts.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(domain));
    found.map(|(_, account)| account).ok_or_else(|| format!("there is none for {domain:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_account_of_a_domain() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("accounts.json");
        let known = r#"{"Example.org": {"username": "u", "password": "p", "subdomain": "s",
            "fulldomain": "s.auth.example", "allowfrom": []}}"#;
        for (text, domain, expected) in [
            (known, "example.org", Ok("s")),
            (known, "other.example", Err("there is none for \"other.example\"")),
            ("[]", "example.org", Err("invalid type: sequence")),
            ("{\"example.org\": {\"username\": \"u\"}}", "example.org", Err("missing field")),
        ] {
            std::fs::write(&path, text).unwrap();
            let found = account(&path, domain).map(|account| account.subdomain);
            match expected {
                Ok(expected) => assert_eq!(found.as_deref(), Ok(expected)),
                Err(expected) => {
                    let reason = found.unwrap_err();
                    assert!(reason.starts_with(expected), "{domain}: {reason}");
                }
            }
        }
        let missing = account(Path::new("/nonexistent"), "a").err();
        assert!(missing.unwrap().starts_with("No such file"));
    }
}
