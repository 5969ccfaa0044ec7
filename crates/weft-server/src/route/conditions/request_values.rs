//! Values of a request by name, which are read once for all conditions of a path.

use std::borrow::Cow;
use std::cell::OnceCell;

use weft::Request;

use crate::template::{cookies, query_parameters};

/// A request, with its cookies and query parameters in the order of their names.
pub(crate) struct RequestValues<'r> {
    request: &'r Request,
    cookies: OnceCell<Pairs<'r>>,
    parameters: OnceCell<Pairs<'r>>,
}

/// Names and values, sorted by name: a name is found in logarithmic time, however many a client
/// sends.
struct Pairs<'r>(Vec<Pair<'r>>);

type Pair<'r> = (Cow<'r, [u8]>, Cow<'r, [u8]>);

impl<'r> RequestValues<'r> {
    pub(crate) fn new(request: &'r Request) -> RequestValues<'r> {
        RequestValues { request, cookies: OnceCell::new(), parameters: OnceCell::new() }
    }

    pub(super) fn request(&self) -> &'r Request {
        self.request
    }

    /// Returns the values of all cookies with a name (RFC 6265 §4.2.1).
    pub(super) fn cookies(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let cookies = || Pairs::new(cookies(self.request.head()));
        self.cookies.get_or_init(cookies).named(name)
    }

    /// Returns the values of all query parameters with a name, decoded as
    /// `application/x-www-form-urlencoded`.
    pub(super) fn parameters(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let query = self.request.query().unwrap_or_default();
        let parameters = || Pairs::new(query_parameters(query));
        self.parameters.get_or_init(parameters).named(name)
    }
}

impl<'r> Pairs<'r> {
    fn new(pairs: impl Iterator<Item = Pair<'r>>) -> Pairs<'r> {
        let mut pairs: Vec<_> = pairs.collect();
        // Stable: the values of a name keep their order.
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        Pairs(pairs)
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let first = self.0.partition_point(|(known, _)| **known < *name.as_bytes());
        let named =
            self.0[first..].iter().take_while(move |(known, _)| **known == *name.as_bytes());
        named.map(|(_, value)| &**value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::testing;

    /// A request with many cookies and parameters costs one sort, however many conditions there
    /// are.
    #[test]
    fn cookies_and_parameters_are_read_once() {
        let pairs = |separator: &str| {
            let pairs: Vec<_> = (0..100).map(|number| format!("n{number}={number}")).collect();
            pairs.join(separator)
        };
        let head =
            format!("GET /?{} HTTP/1.1\r\nHost: a\r\nCookie: {}\r\n\r\n", pairs("&"), pairs("; "));
        let request = testing::request(head);
        let values = RequestValues::new(&request);
        assert!(values.cookies.get().is_none() && values.parameters.get().is_none());
        let mut lists = Vec::new();
        for number in 0..100 {
            let name = format!("n{number}");
            let expected = number.to_string();
            assert!(values.cookies(&name).eq([expected.as_bytes()]), "{name}");
            assert!(values.parameters(&name).eq([expected.as_bytes()]), "{name}");
            let of_request = [&values.cookies, &values.parameters];
            lists.push(of_request.map(|pairs| pairs.get().unwrap().0.as_ptr()));
        }
        lists.dedup();
        assert_eq!(lists.len(), 1);
    }
}
