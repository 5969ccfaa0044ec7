//! The methods of a route. Pure.

use std::fmt;

use weft::Method;

/// Methods in the key of a route, such as `GET,PUT`. `GET` includes `HEAD` (RFC 9110 §9.3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Methods(Vec<Method>);

impl Methods {
    /// Parses names that are separated by commas.
    pub(crate) fn parse(text: &str) -> Result<Methods, String> {
        let mut methods = Vec::new();
        for name in text.split(',').map(str::trim) {
            let is_permitted = |b: u8| b.is_ascii_alphabetic() || b == b'-';
            if name.is_empty() || !name.bytes().all(is_permitted) {
                return Err(format!(
                    "expected methods that are separated by commas, such as GET,PUT, found {text:?}"
                ));
            }
            if name.bytes().any(|b| b.is_ascii_lowercase()) {
                return Err(format!(
                    "methods are in upper case: {} in place of {name}",
                    name.to_ascii_uppercase()
                ));
            }
            let method = Method::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
            if !methods.contains(&method) {
                methods.push(method);
            }
        }
        Ok(Methods(methods))
    }

    pub(crate) fn contains(&self, method: &Method) -> bool {
        self.0.contains(method) || *method == Method::HEAD && self.0.contains(&Method::GET)
    }

    /// Returns a method that both have.
    pub(crate) fn common<'m>(&'m self, other: &Methods) -> Option<&'m Method> {
        self.iter().find(|method| other.contains(method))
    }

    /// Returns the methods as they are written.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Method> {
        self.0.iter()
    }

    /// Returns the methods for `Allow`, with `HEAD` if there is `GET`.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Method> {
        let head = self.0.contains(&Method::GET) && !self.0.contains(&Method::HEAD);
        self.0.iter().chain(head.then_some(&Method::HEAD))
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(Method::as_str).collect();
        f.write_str(&names.join(","))
    }
}
