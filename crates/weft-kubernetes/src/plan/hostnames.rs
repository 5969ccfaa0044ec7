//! Host names of listeners and routes, and their intersections.

/// Returns true if a host name, which may be a wildcard itself, is within a pattern: equal, or of a
/// wildcard `*.example.org` a name with one label more or several.
pub(super) fn includes(pattern: &str, name: &str) -> bool {
    pattern == name
        || pattern == "*"
        || pattern.strip_prefix('*').is_some_and(|suffix| {
            let name = name.strip_prefix('*').unwrap_or(name);
            suffix.starts_with('.') && name.len() > suffix.len() && name.ends_with(suffix)
        })
}

/// Returns true for a name of labels, without a wildcard.
pub(super) fn is_host_name(name: &str) -> bool {
    let is_permitted = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_permitted);
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Returns true for `*`, a name of labels, or such a name behind `*.`.
pub(super) fn is_host_pattern(name: &str) -> bool {
    name == "*" || is_host_name(name.strip_prefix("*.").unwrap_or(name))
}

/// Returns the names that a listener and a route have in common; `*` is all names. A name is as
/// specific as the more specific one of the two.
pub(super) fn intersection(listener: Option<&str>, route: &[String]) -> Vec<String> {
    let listener = listener.filter(|name| !name.is_empty()).unwrap_or("*").to_ascii_lowercase();
    let route: Vec<_> = route.iter().map(|name| name.to_ascii_lowercase()).collect();
    if route.is_empty() {
        return vec![listener];
    }
    let mut common: Vec<String> = Vec::new();
    for name in route {
        let both = match (includes(&listener, &name), includes(&name, &listener)) {
            (true, _) => name,
            (false, true) => listener.clone(),
            (false, false) => continue,
        };
        if !common.contains(&both) {
            common.push(both);
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intersects_names_of_listeners_and_routes() {
        for (listener, route, expected) in [
            (None, &[][..], &["*"][..]),
            (Some("a.example"), &[], &["a.example"]),
            (None, &["a.example", "*.b.example"], &["a.example", "*.b.example"]),
            (Some("*.example"), &["a.example", "b.a.example"], &["a.example", "b.a.example"]),
            (Some("*.example"), &["example"], &[]),
            (Some("*.example"), &["*.a.example"], &["*.a.example"]),
            (Some("*.a.example"), &["*.example"], &["*.a.example"]),
            (Some("a.example"), &["*.example"], &["a.example"]),
            (Some("A.example"), &["a.Example"], &["a.example"]),
            (Some("*.example"), &["*.example"], &["*.example"]),
            (Some("a.example"), &["b.example", "aa.example"], &[]),
            (Some("*.example"), &["badexample"], &[]),
        ] {
            let route: Vec<_> = route.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(intersection(listener, &route), expected, "{listener:?} {route:?}");
        }
    }
}
