//! Fields of requests that upstreams and scripts get in place of those of the client.

use weft::{HeaderName, HeaderValue, Request};

/// Changes to the fields of a request, made by its route. They are an extension of the request, so
/// that its head need not be copied, and so that middleware and logs see the fields of the client.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestFields {
    /// Set fields, which replace those of the client.
    set: Vec<(HeaderName, HeaderValue)>,
    removed: Vec<HeaderName>,
}

impl RequestFields {
    /// Returns the changes to the fields of a request; `None` if there are none.
    pub(crate) fn of(request: &Request) -> Option<&RequestFields> {
        request.extensions().get()
    }

    /// Sets a field of a request, and replaces one that was set before.
    pub(crate) fn set(request: &mut Request, name: HeaderName, value: HeaderValue) {
        let fields = RequestFields::of_mut(request);
        fields.set.retain(|(known, _)| *known != name);
        fields.set.push((name, value));
    }

    /// Removes a field of a request.
    pub(crate) fn remove(request: &mut Request, name: HeaderName) {
        let fields = RequestFields::of_mut(request);
        fields.set.retain(|(known, _)| *known != name);
        fields.removed.push(name);
    }

    fn of_mut(request: &mut Request) -> &mut RequestFields {
        request.extensions_mut().get_or_insert_with(RequestFields::default)
    }

    /// Returns true for a field of the client that is not passed on. So is one with other
    /// punctuation in its name: many applications do not distinguish `X_User` from `X-User`.
    pub(crate) fn replaces(&self, name: &[u8]) -> bool {
        let set = self.set.iter().map(|(name, _)| name);
        set.chain(&self.removed).any(|changed| is_alike(changed.as_str().as_bytes(), name))
    }

    /// Returns the set fields.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.set.iter().map(|(name, value)| (name, value))
    }
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
}
