//! Field values of messages, whatever holds them.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::headers::Headers;
use crate::list::list_members;

/// The fields of a message, by name.
pub trait FieldValues {
    /// Returns the values of all field lines with this name, in lowercase, in their order.
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]>;

    /// Returns the members of the lists in all field lines with this name.
    fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.values(name).flat_map(list_members)
    }

    /// Returns the value of the first field line with this name.
    fn first_value<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        self.values(name).next()
    }
}

impl FieldValues for Headers {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.get_all(name)
    }
}

impl FieldValues for HeaderMap {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.get_all(name).into_iter().map(HeaderValue::as_bytes)
    }
}

impl FieldValues for [(HeaderName, HeaderValue)] {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |field| field.0 == name).map(|field| field.1.as_bytes())
    }
}

impl FieldValues for Vec<(HeaderName, HeaderValue)> {
    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.as_slice().values(name)
    }
}
