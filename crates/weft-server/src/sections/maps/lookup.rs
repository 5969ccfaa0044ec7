//! The maps of a plan, in which requests look values up.

use weft::Request;
use weft_config::{Located, Problem};

use super::client_table::ClientTable;
use super::map_text::MapText;
use super::order::check_order;
use super::value_table::ValueTable;
use super::{MapConfig, MapSettings};
use crate::base::share::ShareGroups;
use crate::template::{MapSource, MapValue, Template};

/// Maps by name.
pub(crate) struct Maps(Vec<Map>);

struct Map {
    name: Box<str>,
    /// `None` for a table of clients.
    input: Option<Template>,
    table: Table,
    default: MapText,
}

enum Table {
    Values(ValueTable),
    Clients(ClientTable),
    Shares(ShareGroups),
    /// The settings are invalid.
    Invalid,
}

/// Default input of shares.
const CLIENT: &str = "{client_ip}";

impl Maps {
    /// Makes maps of their settings.
    pub(super) fn new(settings: &[MapConfig], problems: &mut Vec<Problem>) -> Maps {
        let mut maps: Vec<_> = settings.iter().map(|map| Map::new(map, problems)).collect();
        let used =
            |map: &Map| map.templates().flat_map(Template::maps).map(str::to_owned).collect();
        check_order(settings, &maps.iter().map(used).collect::<Vec<_>>(), problems);
        maps.sort_by(|a, b| a.name.cmp(&b.name));
        Maps(maps)
    }
}

impl MapSource for Maps {
    fn input(&self, name: &str, request: &Request) -> Option<(usize, String)> {
        let number = self.0.binary_search_by(|map| (*map.name).cmp(name)).ok()?;
        // An input that is too long has no entry.
        let expand = |input: &Template| input.expand(request).unwrap_or_default();
        let input = self.0[number].input.as_ref().map(expand);
        Some((number, input.unwrap_or_default()))
    }

    fn look_up(&self, map: usize, input: &str, request: &Request) -> MapValue {
        let Map { table, default, .. } = &self.0[map];
        let found = match table {
            Table::Values(table) => table.find(input, request),
            Table::Clients(table) => {
                let address = request.peer().address().map(|address| address.ip());
                address.and_then(|address| table.find(address)).map(|text| text.expand(request))
            }
            // Requests without an input belong to no share.
            Table::Shares(shares) if !input.is_empty() => {
                shares.group_of(input).map(MapValue::literal)
            }
            Table::Shares(_) | Table::Invalid => None,
        };
        found.unwrap_or_else(|| default.expand(request))
    }
}

impl Map {
    fn new(MapConfig { name, settings }: &MapConfig, problems: &mut Vec<Problem>) -> Map {
        let mut parts = Vec::new();
        let input = Map::input(name, settings, &mut parts);
        let table = Map::table(name, settings, &mut parts);
        let default = settings.default.as_ref().map(MapText::parse);
        let default = default.unwrap_or_else(|| Ok(MapText::Literal("".into())));
        let default = default.map_err(|problem| parts.push(problem)).ok();
        problems.append(&mut parts);
        let default = default.unwrap_or_else(|| MapText::Literal("".into()));
        Map { name: name.value.as_str().into(), input, table, default }
    }

    fn input(
        name: &Located<String>,
        settings: &MapSettings,
        problems: &mut Vec<Problem>,
    ) -> Option<Template> {
        let default = settings.shares.as_ref().map(|_| name.clone().map(|_| CLIENT.to_owned()));
        let Some(text) = settings.input.clone().or(default) else {
            if settings.values.is_some() {
                problems.push(name.problem(format!("the map `{}` needs `input`", name.value)));
            }
            return None;
        };
        if settings.clients.is_some() {
            problems.push(text.problem("`input` has no effect beside `client`"));
        }
        let template = Template::parse(&text.value).and_then(Template::known_to_router);
        match template {
            Ok(template) if template.as_literal().is_none() => Some(template),
            Ok(_) => {
                problems.push(text.problem("expected a text with placeholders, such as {host}"));
                None
            }
            Err(message) => {
                problems.push(text.problem(message));
                None
            }
        }
    }

    fn table(name: &Located<String>, settings: &MapSettings, problems: &mut Vec<Problem>) -> Table {
        match (&settings.values, &settings.clients, &settings.shares) {
            (Some(values), None, None) => Table::Values(ValueTable::new(name, values, problems)),
            (None, Some(clients), None) => Table::Clients(ClientTable::new(clients, problems)),
            (None, None, Some(shares)) => {
                let shares = shares.iter().map(|(name, share)| (name.value.clone(), *share));
                match ShareGroups::new(shares) {
                    Ok(groups) => Table::Shares(groups),
                    Err(message) => {
                        problems.push(name.problem(message));
                        Table::Invalid
                    }
                }
            }
            _ => {
                problems.push(name.problem(format!(
                    "the map `{}` needs one of `values`, `client` and `split`",
                    name.value
                )));
                Table::Invalid
            }
        }
    }

    /// Returns all templates of the map.
    fn templates(&self) -> impl Iterator<Item = &Template> {
        let of_values = match &self.table {
            Table::Values(table) => Some(table.texts()),
            _ => None,
        };
        let of_clients = match &self.table {
            Table::Clients(table) => Some(table.texts()),
            _ => None,
        };
        let texts = of_values.into_iter().flatten().chain(of_clients.into_iter().flatten());
        let texts = texts.chain([&self.default]).filter_map(MapText::template);
        self.input.iter().chain(texts)
    }
}
