//! Names of hosts in their normal form.

/// Returns the name of a host in lower case, without its trailing dot.
pub(crate) fn host_name(written: &str) -> Result<String, String> {
    let name = written.strip_suffix('.').unwrap_or(written).to_ascii_lowercase();
    if name == "*" {
        return Ok(name);
    }
    if name == "_" {
        return Err("no client sends the host `_`; all other hosts are `*`".to_owned());
    }
    if !name.is_ascii() {
        return Err(format!("`{written}` is not the name of a host as in the DNS (xn--…)"));
    }
    let is_name = |name: &str| {
        let is_permitted = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_permitted))
    };
    let is_address = |name: &str| {
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
    };
    if is_name(name.strip_prefix("*.").unwrap_or(&name)) || is_address(&name) {
        return Ok(name);
    }
    let hint = hint(&name, is_name);
    Err(format!("`{written}` is neither the name of a host, nor `*.` and one, nor `*`{hint}"))
}

/// Returns the right spelling of a name that is written as in another server.
fn hint(name: &str, is_name: impl Fn(&str) -> bool) -> String {
    if let Some((_, rest)) = name.split_once("://") {
        let host = rest.split(['/', ':']).next().unwrap_or_default();
        return format!("; a host is given without its scheme: `{host}`");
    }
    if name.contains(',') {
        let hosts: Vec<&str> = name.split(',').filter(|host| !host.is_empty()).collect();
        return format!("; names are separated by spaces, without commas: `{}`", hosts.join(" "));
    }
    match name.rsplit_once(':') {
        Some((host, port)) if is_name(host) && port.parse::<u16>().is_ok() => {
            format!("; a host is given without its port: `{host}`")
        }
        _ => match name.split_once('/') {
            Some((host, path)) => format!(
                "; a path is the key of a route in the section of its host `{host}`: `\"/{path}\"`"
            ),
            None => String::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalizes_host_names() {
        for (written, expected) in [
            ("Example.ORG", Some("example.org")),
            ("example.org.", Some("example.org")),
            ("*", Some("*")),
            ("*.Example.org", Some("*.example.org")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("[2001:DB8::1]", Some("[2001:db8::1]")),
            ("_", None),
            ("a:80", None),
            ("*.*.org", None),
            ("a..b", None),
            ("http://a", None),
            ("días.example", None),
        ] {
            assert_eq!(host_name(written).ok().as_deref(), expected, "{written}");
        }
        for (written, hint) in [
            ("a:80", "without its port: `a`"),
            ("https://a.org", "without its scheme: `a.org`"),
            ("http://a.org:80/x", "without its scheme: `a.org`"),
            ("a.org,", "separated by spaces, without commas: `a.org`"),
            ("a.org,b.org", "separated by spaces, without commas: `a.org b.org`"),
            ("a.org/x", "the section of its host `a.org`: `\"/x\"`"),
        ] {
            let message = host_name(written).unwrap_err();
            assert!(message.contains(hint), "{written}: {message}");
        }
    }
}
