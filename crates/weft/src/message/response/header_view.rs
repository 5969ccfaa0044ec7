//! The fields of a response, as middleware looks them up.

use http::{HeaderName, HeaderValue};

use crate::message::fields::Field;

/// The fields of a response, in their order: an iterator, and the fields by name. Made by
/// [`Response::headers`](crate::Response::headers).
///
/// ```
/// use weft::{Response, header};
///
/// let response = Response::text("").with_header("x-a", "1").with_header("x-b", "2");
/// assert_eq!(response.headers().get(header::CONTENT_TYPE).unwrap(), "text/plain; charset=utf-8");
/// let names: Vec<_> = response.headers().map(|(name, _)| name.as_str()).collect();
/// assert_eq!(names, ["content-type", "x-a", "x-b"]);
/// ```
#[derive(Clone, Debug)]
pub struct ResponseHeaderView<'a>(std::slice::Iter<'a, Field>);

impl<'a> ResponseHeaderView<'a> {
    pub(super) fn new(fields: &'a [Field]) -> ResponseHeaderView<'a> {
        ResponseHeaderView(fields.iter())
    }

    /// Returns the value of the first field with this name.
    pub fn get(&self, name: impl AsRef<str>) -> Option<&'a HeaderValue> {
        self.get_all(name).next()
    }

    /// Returns the values of all fields with this name, in their order.
    pub fn get_all<N: AsRef<str>>(&self, name: N) -> impl Iterator<Item = &'a HeaderValue> {
        let has_name = move |field: &&Field| field.0.as_str().eq_ignore_ascii_case(name.as_ref());
        self.0.clone().filter(has_name).map(|(_, value)| value)
    }

    /// Returns true if there is a field with this name.
    pub fn contains(&self, name: impl AsRef<str>) -> bool {
        self.get(name).is_some()
    }
}

impl<'a> Iterator for ResponseHeaderView<'a> {
    type Item = (&'a HeaderName, &'a HeaderValue);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, value)| (name, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for ResponseHeaderView<'_> {}

#[cfg(test)]
mod tests {
    use crate::Response;

    #[test]
    fn finds_fields_by_name() {
        let response = Response::from_body("")
            .with_header("X-A", "1")
            .with_appended_header("x-b", "2")
            .with_appended_header("x-a", "3");
        let headers = response.headers();
        assert_eq!(
            (headers.len(), headers.contains("x-B"), headers.contains("x-c")),
            (3, true, false)
        );
        assert_eq!(headers.get("x-a").unwrap(), "1");
        assert_eq!(headers.get_all("X-a").collect::<Vec<_>>(), ["1", "3"]);
    }
}
