//! Addresses of upstreams. Pure.

/// Returns the URLs of an address of `reverse_proxy`, which may be a range of ports.
pub(super) fn urls(address: &str, scheme: &str) -> Option<Vec<String>> {
    let Some((begin, last)) = address.rsplit_once('-') else {
        return url(address, scheme).map(|url| vec![url]);
    };
    let range = begin.rsplit_once(':').and_then(|(host, first)| {
        Some((host, first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?))
    });
    match range {
        Some((host, ports)) if ports.len() <= 100 => {
            ports.map(|port| url(&format!("{host}:{port}"), scheme)).collect()
        }
        Some(_) => None,
        None => url(address, scheme).map(|url| vec![url]),
    }
}

/// Returns the URL of an address, without a path; `None` for one with placeholders or a path.
pub(super) fn url(address: &str, scheme: &str) -> Option<String> {
    if address.contains(['{', ' ']) {
        return None;
    }
    if let Some(path) = address.strip_prefix("unix/") {
        return Some(format!("unix:{path}")).filter(|_| path.starts_with('/'));
    }
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme @ ("http" | "https" | "h2c"), rest)) => (scheme, rest),
        Some(_) => return None,
        None => (scheme, address),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let rest = rest.strip_prefix("tcp/").unwrap_or(rest);
    if rest.is_empty() || rest.contains(['/', '?', '@']) {
        return None;
    }
    let rest = match rest.strip_prefix(':') {
        Some(port) => format!("localhost:{port}"),
        None => rest.to_owned(),
    };
    Some(format!("{scheme}://{rest}"))
}

/// Returns the addresses of FastCGI servers, whose ports may be a range.
pub(super) fn fastcgi(address: &str) -> Option<Vec<String>> {
    let without_scheme = |url: String| match url.starts_with("unix:") {
        true => Some(url),
        false => url.strip_prefix("http://").map(str::to_owned),
    };
    urls(address, "http")?.into_iter().map(without_scheme).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_addresses() {
        for (address, expected) in [
            ("a:1", vec!["http://a:1"]),
            (":3000", vec!["http://localhost:3000"]),
            ("https://a.org", vec!["https://a.org"]),
            ("h2c://a:1", vec!["h2c://a:1"]),
            ("unix//run/a.sock", vec!["unix:/run/a.sock"]),
            ("a:1-3", vec!["http://a:1", "http://a:2", "http://a:3"]),
            ("my-app:80", vec!["http://my-app:80"]),
        ] {
            let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(urls(address, "http"), Some(expected), "{address}");
        }
        for address in ["{host}:1", "http://a/path", "unix/relative", "a:1-200", "", "ftp://a"] {
            assert_eq!(urls(address, "http"), None, "{address}");
        }
        for (address, expected) in [
            ("unix//run/php.sock", Some(&["unix:/run/php.sock"][..])),
            ("127.0.0.1:9000", Some(&["127.0.0.1:9000"])),
            ("a:9000-9001", Some(&["a:9000", "a:9001"])),
            ("https://a:9000", None),
        ] {
            let expected = expected.map(|all| all.iter().map(|it| (*it).to_owned()).collect());
            assert_eq!(fastcgi(address), expected, "{address}");
        }
    }
}
