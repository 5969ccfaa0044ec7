//! BIND, which serves a zone and accepts updates of it.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// Writes the files of a zone in which all names have the address `host`, and a key for updates.
/// The key is permitted to change records of validations only.
pub fn command(folder: &Path, zone: &str, host: IpAddr, address: SocketAddr) -> Command {
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    let (ip, port, path) = (address.ip(), address.port(), folder.display());
    let secret = "c2VjcmV0IG9mIHRoZSB0ZXN0cw==";
    write("dns.key", format!("key \"weft\" {{ algorithm hmac-sha256; secret \"{secret}\"; }};\n"));
    write(
        "zone.db",
        format!(
            "$TTL 1\n\
             @ IN SOA ns admin 1 60 60 60 1\n\
             @ IN NS ns\n\
             @ IN A {host}\n\
             * IN A {host}\n\
             ns IN A {host}\n"
        ),
    );
    write(
        "named.conf",
        format!(
            "options {{\n\
             directory \"{path}\"; pid-file none; session-keyfile none;\n\
             listen-on port {port} {{ {ip}; }}; listen-on-v6 {{ none; }};\n\
             recursion no; dnssec-validation no;\n\
             }};\n\
             controls {{ }};\n\
             include \"{path}/dns.key\";\n\
             zone \"{zone}\" {{\n\
             type primary; file \"{path}/zone.db\";\n\
             update-policy {{ grant weft subdomain _acme-challenge.{zone} TXT; }};\n\
             }};\n"
        ),
    );
    let mut command = Command::new("named");
    command.args(["-g", "-n", "1", "-c"]).arg(folder.join("named.conf"));
    command
}
