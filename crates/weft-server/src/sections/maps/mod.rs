//! `[maps]`: named tables, which map a value of a request to the value of the placeholder
//! `{map.NAME}`.

mod client_table; // values by network
mod map_text; // texts of maps
mod lookup; // the maps of a plan
mod order; // maps whose input has other maps
mod value_table; // values by text and by pattern

use std::sync::Arc;

use weft::net::IpNetwork;
use weft_config::{
    ConfigResult, Entries, Key, Located, Pair, Problem, ValueKind, quoted, quoted_table,
    read_section,
};

pub(crate) use self::lookup::Maps;
pub(crate) use self::order::unknown_map;
use crate::base::share::Share;

/// Maximum number of maps.
const MAX_MAPS: usize = 64;

/// Maximum number of entries of a map.
const MAX_ENTRIES: usize = 100_000;

/// Maximum length of a value, in bytes.
const MAX_VALUE_BYTES: usize = 4 << 10;

/// A map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapConfig {
    pub(crate) name: Located<String>,
    pub(crate) settings: MapSettings,
}

/// Values of the keys of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapSettings {
    input: Option<Located<String>>,
    values: Option<Vec<Entry<String>>>,
    clients: Option<Vec<Entry<IpNetwork>>>,
    shares: Option<Vec<(Located<String>, Share)>>,
    default: Option<Located<String>>,
}

/// A key of a table, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry<K> {
    key: Located<K>,
    value: Located<String>,
}

/// The maps of a plan. Equal settings have equal maps.
#[derive(Clone, Default)]
pub(crate) struct MapsPlan {
    pub(crate) settings: Vec<MapConfig>,
    /// `None` without maps.
    pub(crate) maps: Option<Arc<Maps>>,
}

pub(crate) static MAP: [Key<MapSettings>; 5] = [
    Key {
        name: "input",
        help: "text with placeholders that is looked up, such as {host}; for `split` by default the \
               address of the client",
        kind: ValueKind::Text(|map, text| {
            map.input = Some(text);
            Ok(())
        }),
        show: |map| show_text(map.input.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "values",
        help: "values by input; a key `~ REGEX` is a pattern, whose value may have {re.1} or {re.NAME}",
        kind: ValueKind::Pairs(|map, pairs| {
            let entry =
                |pair: Pair| Ok(Entry { key: pair.name, value: checked_value(pair.value)? });
            map.values = Some(checked_count(pairs)?.map(entry).collect::<ConfigResult<_>>()?);
            Ok(())
        }),
        show: |map| show_entries(map.values.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "client",
        help: "values by network of the client; the smallest network applies",
        kind: ValueKind::Pairs(|map, pairs| {
            map.clients = Some(checked_count(pairs)?.map(client).collect::<ConfigResult<_>>()?);
            Ok(())
        }),
        show: |map| show_entries(map.clients.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "split",
        help: "values with their shares of the inputs, such as `{ canary = \"5%\" }`",
        kind: ValueKind::Pairs(|map, pairs| {
            map.shares = Some(checked_count(pairs)?.map(share).collect::<ConfigResult<_>>()?);
            Ok(())
        }),
        show: |map| {
            let shares = map.shares.iter().flatten();
            quoted_table(shares.map(|(name, share)| (name.value.clone(), share.to_string())))
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "default",
        help: "value of all other inputs; empty by default",
        kind: ValueKind::Text(|map, text| {
            map.default = Some(checked_value(text)?);
            Ok(())
        }),
        show: |map| show_text(map.default.as_ref()),
        ..Key::FILE_ONLY
    },
];

fn checked_count(pairs: Vec<Pair>) -> ConfigResult<impl Iterator<Item = Pair>> {
    match pairs.get(MAX_ENTRIES) {
        Some(pair) => Err(pair.name.problem(format!("a map has at most {MAX_ENTRIES} entries"))),
        None => Ok(pairs.into_iter()),
    }
}

fn checked_value(value: Located<String>) -> ConfigResult<Located<String>> {
    match value.value.len() {
        0..=MAX_VALUE_BYTES => Ok(value),
        _ => Err(value.problem(format!("a value of a map has at most {MAX_VALUE_BYTES} bytes"))),
    }
}

fn client(Pair { name, value, .. }: Pair) -> ConfigResult<Entry<IpNetwork>> {
    let network = name.value.parse::<IpNetwork>();
    let network = network.map_err(|error| name.problem(error.reason().to_owned()))?;
    Ok(Entry { key: name.map(|_| network), value: checked_value(value)? })
}

fn share(Pair { name, value, .. }: Pair) -> ConfigResult<(Located<String>, Share)> {
    match Share::parse(&value.value) {
        Some(share) => Ok((checked_value(name)?, share)),
        None => Err(value.problem(Share::EXPECTED)),
    }
}

fn show_text(text: Option<&Located<String>>) -> String {
    text.map_or_else(String::new, |text| quoted(&text.value))
}

fn show_entries<K: ToString>(entries: Option<&Vec<Entry<K>>>) -> String {
    let entries = entries.into_iter().flatten();
    quoted_table(entries.map(|entry| (entry.key.value.to_string(), entry.value.value.clone())))
}

/// Reads the tables of the section. A map that several files have is an error.
pub(crate) fn read_maps(tables: Entries<'_>, problems: &mut Vec<Problem>) -> Vec<MapConfig> {
    let mut maps = Vec::<MapConfig>::new();
    for (name, table) in tables {
        let is_name = name.value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        if !is_name || name.value.is_empty() {
            problems.push(name.problem(format!(
                "expected a name of letters, digits, `-` and `_`, found {:?}",
                name.value
            )));
            continue;
        }
        if let Some(known) = maps.iter().find(|known| known.name.value == name.value) {
            let first = known.name.location.relative_to(&name.location);
            problems.push(name.problem(format!("the map `{}` is given twice{first}", name.value)));
            continue;
        }
        let mut settings = MapSettings::default();
        read_section(&MAP, &mut settings, &[table], &|_| None, problems);
        maps.push(MapConfig { name, settings });
    }
    if let Some(map) = maps.get(MAX_MAPS) {
        problems.push(map.name.problem(format!("there are at most {MAX_MAPS} maps")));
    }
    maps
}

impl MapsPlan {
    /// Validates maps, and makes them ready for requests.
    pub(crate) fn new(settings: Vec<MapConfig>, problems: &mut Vec<Problem>) -> MapsPlan {
        if settings.is_empty() {
            return MapsPlan::default();
        }
        let maps = Maps::new(&settings, problems);
        MapsPlan { settings, maps: Some(Arc::new(maps)) }
    }

    /// Returns true if there is a map with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.settings.iter().any(|map| map.name.value == name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.settings.iter().map(|map| &*map.name.value)
    }
}

impl PartialEq for MapsPlan {
    fn eq(&self, other: &MapsPlan) -> bool {
        self.settings == other.settings
    }
}

impl Eq for MapsPlan {}

impl std::fmt::Debug for MapsPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.settings.fmt(f)
    }
}

#[cfg(test)]
mod tests;
