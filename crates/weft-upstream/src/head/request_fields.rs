//! Fields of requests that upstreams and scripts get in place of the fields of the client.

use std::sync::Arc;

use weft::Request;
use weft::header::{self, HeaderName, HeaderValue};

/// Changes to the fields of a request, made by its route. They are an extension of the request, so
/// that its head need not be copied, and so that middleware and logs see the fields of the client.
///
/// Requests share the changes that are the same for all of them.
#[derive(Clone, Debug, Default)]
pub struct RequestFields(Arc<Changes>);

#[derive(Clone, Debug, Default)]
struct Changes {
    /// Set fields, which replace the fields of the client.
    set: Vec<(HeaderName, HeaderValue)>,
    removed: Vec<HeaderName>,
    /// `Host`, in place of [`ProxySettings::host`](crate::ProxySettings::host).
    host: Option<HeaderValue>,
    /// The lengths of all names, modulo 64, as a set of bits.
    lengths: u64,
}

impl RequestFields {
    /// Returns the changes to the fields of a request; `None` if there are none.
    pub fn of(request: &Request) -> Option<&RequestFields> {
        request.extensions().get()
    }

    /// Sets a field of a request, and replaces a field that was set before.
    pub fn set(request: &mut Request, name: HeaderName, value: HeaderValue) {
        RequestFields::of_mut(request).set_field(name, value);
    }

    /// Removes a field of a request.
    pub fn remove(request: &mut Request, name: HeaderName) {
        RequestFields::of_mut(request).remove_field(name);
    }

    fn of_mut(request: &mut Request) -> &mut RequestFields {
        request.extensions_mut().get_or_insert_with(RequestFields::default)
    }

    /// Adds a change: sets a field, and replaces a field that was set before. `Host` takes precedence
    /// over [`ProxySettings::host`](crate::ProxySettings::host).
    pub fn set_field(&mut self, name: HeaderName, value: HeaderValue) {
        let changes = Arc::make_mut(&mut self.0);
        if name == header::HOST {
            changes.host = Some(value);
            return;
        }
        changes.lengths |= length_bit(name.as_str().as_bytes());
        changes.set.retain(|(known, _)| *known != name);
        changes.set.push((name, value));
    }

    /// Adds a change: removes a field. Without a set `Host`, upstreams get another one.
    pub fn remove_field(&mut self, name: HeaderName) {
        let changes = Arc::make_mut(&mut self.0);
        if name == header::HOST {
            changes.host = None;
            return;
        }
        changes.lengths |= length_bit(name.as_str().as_bytes());
        changes.set.retain(|(known, _)| *known != name);
        changes.removed.push(name);
    }

    /// Makes these changes to a request, after others that were made before.
    pub fn apply(&self, request: &mut Request) {
        let all = request.extensions_mut().get_or_insert_with(|| self.clone());
        if Arc::ptr_eq(&all.0, &self.0) {
            return;
        }
        self.0.removed.iter().for_each(|name| all.remove_field(name.clone()));
        self.iter().for_each(|(name, value)| all.set_field(name.clone(), value.clone()));
        if let Some(host) = self.host() {
            all.set_field(header::HOST, host.clone());
        }
    }

    /// Returns true for a field of the client that is not passed on, also if its name has other
    /// punctuation: many applications do not distinguish `X_User` from `X-User`.
    pub fn replaces(&self, name: &[u8]) -> bool {
        let Changes { set, removed, lengths, .. } = &*self.0;
        let mut changed = set.iter().map(|(name, _)| name).chain(removed);
        lengths & length_bit(name) != 0
            && changed.any(|changed| is_alike(changed.as_str().as_bytes(), name))
    }

    /// Returns the set `Host`.
    pub fn host(&self) -> Option<&HeaderValue> {
        self.0.host.as_ref()
    }

    /// Returns the set fields, except for `Host`.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.set.iter().map(|(name, value)| (name, value))
    }
}

fn length_bit(name: &[u8]) -> u64 {
    1 << (name.len() % 64)
}

/// Compares names without regard to case and to the kind of punctuation.
fn is_alike(a: &[u8], b: &[u8]) -> bool {
    let matches = |(a, b): (&u8, &u8)| {
        a.eq_ignore_ascii_case(b) || !a.is_ascii_alphanumeric() && !b.is_ascii_alphanumeric()
    };
    a.len() == b.len() && a.iter().zip(b).all(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_all_spellings_of_a_name() {
        let mut request = weft::testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(RequestFields::of(&request).is_none());
        RequestFields::set(&mut request, "x-user".parse().unwrap(), HeaderValue::from_static("a"));
        RequestFields::set(&mut request, "x-user".parse().unwrap(), HeaderValue::from_static("b"));
        RequestFields::remove(&mut request, "cookie".parse().unwrap());
        let fields = RequestFields::of(&request).unwrap();
        for (name, expected) in [
            ("X-User", true),
            ("x_user", true),
            ("x.USER", true),
            ("xauser", false),
            ("x-users", false),
            ("Cookie", true),
            ("cookie2", false),
        ] {
            assert_eq!(fields.replaces(name.as_bytes()), expected, "{name}");
        }
        let set: Vec<_> = fields.iter().collect();
        assert_eq!(set, [(&"x-user".parse().unwrap(), &HeaderValue::from_static("b"))]);
        RequestFields::remove(&mut request, "x-user".parse().unwrap());
        assert_eq!(RequestFields::of(&request).unwrap().iter().count(), 0);
    }

    #[test]
    fn host_is_no_other_field() {
        let mut request = weft::testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut shared = RequestFields::default();
        shared.set_field(header::HOST, HeaderValue::from_static("shared"));
        let host = |request: &Request| {
            let fields = RequestFields::of(request).unwrap();
            assert_eq!((fields.iter().count(), fields.replaces(b"host")), (0, false));
            fields.host().cloned()
        };
        RequestFields::set(&mut request, header::HOST, HeaderValue::from_static("b"));
        assert_eq!(host(&request), Some(HeaderValue::from_static("b")));
        shared.apply(&mut request);
        assert_eq!(host(&request), Some(HeaderValue::from_static("shared")));
        RequestFields::remove(&mut request, header::HOST);
        assert_eq!(host(&request), None);
    }

    #[test]
    fn shared_changes_follow_those_of_the_request() {
        let [a, b, c] = ["a", "b", "c"].map(HeaderName::from_static);
        let mut shared = RequestFields::default();
        shared.remove_field(a.clone());
        shared.set_field(b.clone(), HeaderValue::from_static("2"));
        let shown = |request: &Request| {
            let fields = RequestFields::of(request).unwrap();
            let set =
                fields.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap()));
            (
                set.collect::<Vec<_>>().join(" "),
                ["a", "b", "c"].map(|it| fields.replaces(it.as_bytes())),
            )
        };
        let new = || weft::testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (mut one, mut other) = (new(), new());
        shared.apply(&mut one);
        RequestFields::set(&mut other, a, HeaderValue::from_static("1"));
        RequestFields::set(&mut other, b, HeaderValue::from_static("1"));
        RequestFields::set(&mut other, c.clone(), HeaderValue::from_static("1"));
        shared.apply(&mut other);
        assert_eq!(shown(&one), ("b=2".to_owned(), [true, true, false]));
        assert_eq!(shown(&other), ("c=1 b=2".to_owned(), [true; 3]));
        // Changes of one request do not apply to others.
        RequestFields::set(&mut one, c, HeaderValue::from_static("3"));
        let mut last = new();
        shared.apply(&mut last);
        assert_eq!(shown(&last), ("b=2".to_owned(), [true, true, false]));
    }
}
