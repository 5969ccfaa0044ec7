//! Values of named maps, for the placeholders `{map.NAME}`. The maps themselves are in a section of
//! the configuration; a request of a route that uses them refers to them.

use std::sync::{Arc, Mutex, PoisonError};

use weft::Request;

/// The maps of a configuration.
pub(crate) trait MapSource: Send + Sync {
    /// Returns the number of a map, and its input for a request; `None` without such a map.
    fn input(&self, name: &str, request: &Request) -> Option<(usize, String)>;

    /// Returns the value of a map for an input.
    fn look_up(&self, map: usize, input: &str, request: &Request) -> MapValue;
}

/// A value of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapValue {
    pub(crate) text: String,
    /// Length of the beginning that is in the configuration, and has no part of the request.
    pub(crate) configured: usize,
}

impl MapValue {
    pub(crate) fn literal(text: &str) -> MapValue {
        MapValue { text: text.to_owned(), configured: text.len() }
    }

    /// Returns true if the value has no part of the request.
    pub(crate) fn is_literal(&self) -> bool {
        self.configured == self.text.len()
    }
}

/// Extension of a request: the maps, and values that were found for it.
#[derive(Clone)]
pub(crate) struct RequestMaps(Arc<FoundValues>);

struct FoundValues {
    source: Arc<dyn MapSource>,
    /// Numbers of maps, with inputs and values.
    found: Mutex<Vec<(usize, String, MapValue)>>,
}

/// Maximum number of values that are kept for a request.
const MAX_KEPT_VALUES: usize = 16;

impl RequestMaps {
    pub(crate) fn new(source: Arc<dyn MapSource>) -> RequestMaps {
        RequestMaps(Arc::new(FoundValues { source, found: Mutex::default() }))
    }

    /// Returns the value of a map. It is looked up again only for another input, or if it has parts
    /// of the request.
    pub(crate) fn value(&self, name: &str, request: &Request) -> Option<MapValue> {
        let FoundValues { source, found } = &*self.0;
        let (map, input) = source.input(name, request)?;
        let found = || found.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |(known, of, _): &&(usize, String, MapValue)| *known == map && *of == input;
        if let Some((_, _, value)) = found().iter().find(is_known) {
            return Some(value.clone());
        }
        let value = source.look_up(map, &input, request);
        if value.is_literal() && found().len() < MAX_KEPT_VALUES {
            found().push((map, input, value.clone()));
        }
        Some(value)
    }
}

/// Returns the names of the maps among the placeholders in a text of the configuration.
pub(crate) fn map_names(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("{map.").filter_map(|(at, begin)| {
        let is_escaped = text[..at].ends_with('{');
        let (name, _) = text[at + begin.len()..].split_once('}')?;
        (!is_escaped).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use weft::testing;

    /// Counts lookups. The input is the path, and the value its length.
    #[derive(Default)]
    struct Lengths(AtomicUsize);

    impl MapSource for Lengths {
        fn input(&self, name: &str, request: &Request) -> Option<(usize, String)> {
            Some((name.parse().ok()?, request.path().to_owned()))
        }

        fn look_up(&self, map: usize, input: &str, _: &Request) -> MapValue {
            self.0.fetch_add(1, Ordering::Relaxed);
            let text = input.len().to_string();
            MapValue { configured: if map == 2 { 0 } else { text.len() }, text }
        }
    }

    #[test]
    fn values_are_looked_up_once_per_input() {
        let source = Arc::new(Lengths::default());
        let maps = RequestMaps::new(source.clone());
        let request =
            |path: &str| testing::request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let (a, b) = (request("/a"), request("/bc"));
        for (name, request, expected, lookups) in [
            ("0", &a, Some("2"), 1),
            ("0", &a, Some("2"), 1),
            ("0", &b, Some("3"), 2),
            ("1", &a, Some("2"), 3),
            ("1", &a, Some("2"), 3),
            ("2", &a, Some("2"), 4),
            ("2", &a, Some("2"), 5),
            ("x", &a, None, 5),
        ] {
            let value = maps.value(name, request).map(|value| value.text);
            assert_eq!(value.as_deref(), expected, "{name}");
            assert_eq!(source.0.load(Ordering::Relaxed), lookups, "{name}");
        }
        for number in 0..2 * MAX_KEPT_VALUES {
            maps.value("0", &request(&format!("/{number}")));
        }
        assert_eq!(maps.0.found.lock().unwrap().len(), MAX_KEPT_VALUES);
    }

    #[test]
    fn finds_names_of_maps() {
        let text = "{map.a} {{map.b} {map.c-d}{host} {map.";
        assert_eq!(map_names(text).collect::<Vec<_>>(), ["a", "c-d"]);
    }
}
