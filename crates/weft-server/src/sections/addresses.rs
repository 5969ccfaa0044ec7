//! Addresses to listen on.

use std::collections::HashMap;

use weft::Address;
use weft_config::{ConfigResult, Located, Problem, quoted_texts};

/// Addresses to listen on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) list: Vec<Located<String>>,
    /// The configuration has no addresses. `list` has the default, if there is one.
    pub(crate) are_defaults: bool,
}

impl Addresses {
    /// Checks the addresses of a key.
    pub(super) fn parse(list: Vec<Located<String>>) -> ConfigResult<Addresses> {
        for address in &list {
            let parsed = address.value.parse::<Address>();
            parsed.map_err(|error| address.problem(error.reason().to_owned()))?;
        }
        Ok(Addresses { list, are_defaults: false })
    }

    /// Adds the default if there are no addresses.
    pub(crate) fn or_default(mut self, default: Option<&str>) -> Addresses {
        self.are_defaults = self.list.is_empty();
        if self.are_defaults {
            self.list.extend(default.map(|text| Located::without_location(text.to_owned())));
        }
        self
    }

    /// Returns the addresses as texts.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &String> {
        self.list.iter().map(|address| &address.value)
    }

    pub(super) fn show(&self) -> String {
        quoted_texts(&self.list)
    }
}

/// Reports addresses that occur twice. Port 0 is another port each time.
pub(crate) fn check_listening<'a>(
    addresses: impl Iterator<Item = &'a Located<String>>,
    problems: &mut Vec<Problem>,
) {
    let mut known = HashMap::new();
    for address in addresses.filter(|address| !address.value.ends_with(":0")) {
        let all = address.value.strip_prefix(':').map(|port| format!("[::]:{port}"));
        let normal = all.unwrap_or_else(|| address.value.clone());
        if let Some(first) = known.insert(normal, &address.location) {
            let first = first.relative_to(&address.location);
            let message = format!("the address `{}` is given twice{first}", address.value);
            problems.push(address.problem(message));
        }
    }
}
