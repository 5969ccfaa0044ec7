//! A configuration file that is being composed. Pure.

use std::collections::BTreeMap;

use weft_config::format::format;
use weft_config::quoted;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u64),
    Bool(bool),
    List(Vec<Value>),
    Table(Table),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Value {
        Value::Bool(bool)
    }
}

impl From<Table> for Value {
    fn from(table: Table) -> Value {
        Value::Table(table)
    }
}

impl<V: Into<Value>> From<Vec<V>> for Value {
    fn from(values: Vec<V>) -> Value {
        Value::List(values.into_iter().map(V::into).collect())
    }
}

impl<V: Into<Value>, const N: usize> From<[V; N]> for Value {
    fn from(values: [V; N]) -> Value {
        Value::from(Vec::from(values))
    }
}

impl Value {
    /// Returns a list; a list of one value is that value.
    pub(super) fn one_or_list<V: Into<Value>>(values: Vec<V>) -> Value {
        match <[V; 1]>::try_from(values) {
            Ok([value]) => value.into(),
            Err(values) => values.into(),
        }
    }

    fn map_texts(&self, change: &dyn Fn(&str) -> String) -> Value {
        match self {
            Value::Text(text) => Value::Text(change(text)),
            Value::List(values) => {
                Value::List(values.iter().map(|value| value.map_texts(change)).collect())
            }
            Value::Table(table) => Value::Table(table.map_texts(change)),
            other => other.clone(),
        }
    }

    pub(super) fn show(&self) -> String {
        match self {
            Value::Text(text) => quoted(text),
            Value::Number(number) => number.to_string(),
            Value::Bool(bool) => bool.to_string(),
            Value::List(values) => {
                format!("[{}]", values.iter().map(Value::show).collect::<Vec<_>>().join(", "))
            }
            Value::Table(table) => {
                let entry = |(key, value): &(String, Value)| {
                    format!("{} = {}", show_key(key), value.show())
                };
                format!("{{ {} }}", table.0.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Keys and values, in the order in which they were set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table(Vec<(String, Value)>);

impl Table {
    /// Sets a key, in place of its former value.
    pub(super) fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.0.push((key, value)),
        }
    }

    /// Sets a key if there is a value.
    pub(super) fn set_some(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Sets a key to a list or a table, unless `value` is empty.
    pub(super) fn set_filled(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        if !matches!(&value, Value::List(list) if list.is_empty())
            && !matches!(&value, Value::Table(table) if table.is_empty())
        {
            self.set(key, value);
        }
    }

    /// Sets the keys of a fixed response, whose status is 200 by default.
    pub(super) fn set_response(&mut self, text: &str, status: u64) {
        self.set("respond", text);
        self.set_some("status", Some(status).filter(|status| *status != 200));
    }

    /// Sets the keys of a redirect, whose status is 301 by default.
    pub(super) fn set_redirect(&mut self, target: String, status: u64) {
        self.set("redirect", target);
        self.set_some("status", Some(status).filter(|status| *status != 301));
    }

    pub(super) fn entries(&self) -> &[(String, Value)] {
        &self.0
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.0.retain(|(known, _)| known != key);
    }

    /// Removes an entry of the table of a key, an item of its list, or its whole value. Returns
    /// false if there is none with this value.
    pub(super) fn remove_in(&mut self, key: &str, name: Option<&str>, value: &Value) -> bool {
        let rest = match (self.get(key), name) {
            (Some(Value::Table(table)), Some(name)) if table.get(name) == Some(value) => {
                let mut rest = table.clone();
                rest.remove(name);
                Value::Table(rest)
            }
            (Some(Value::List(list)), None) if list.contains(value) => {
                Value::List(list.iter().filter(|item| *item != value).cloned().collect())
            }
            (Some(whole), None) if whole == value => Value::List(Vec::new()),
            _ => return false,
        };
        self.remove(key);
        self.set_filled(key, rest);
        true
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| &**key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the table with changed texts, also within its values.
    pub(super) fn map_texts(&self, change: &dyn Fn(&str) -> String) -> Table {
        let entries = self.0.iter().map(|(key, value)| (key.clone(), value.map_texts(change)));
        Table(entries.collect())
    }

    /// Returns true if a value has this text.
    pub(super) fn mentions(&self, text: &str) -> bool {
        self.0.iter().any(|(_, value)| value.show().contains(text))
    }

    /// Returns the table as it is written in a line.
    pub(super) fn show(&self) -> String {
        Value::Table(self.clone()).show()
    }

    /// Adds the entries of another table whose keys are not set.
    pub(super) fn add(&mut self, other: &Table) {
        for (key, value) in &other.0 {
            if self.get(key).is_none() {
                self.set(key, value.clone());
            }
        }
    }
}

/// A configuration file. Notes become comments in front of their subjects.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) notes: Vec<String>,
    pub(super) top: Table,
    /// Sections without hosts, by name.
    pub(super) sections: Vec<(&'static str, Table)>,
    /// Sections of `[maps]`, by name.
    pub(super) maps: Vec<(String, Table)>,
    pub(super) streams: Vec<Stream>,
    pub(super) hosts: Vec<Host>,
}

/// A section of `[streams]`.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) notes: Vec<String>,
    /// Text in the name of the section.
    pub(super) addresses: String,
    pub(super) options: Table,
}

#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) notes: Vec<String>,
    /// Text in the name of the section.
    pub(super) names: String,
    /// Addresses that the host is bound to.
    pub(super) listen: Vec<String>,
    pub(super) options: Table,
    pub(super) routes: Vec<Route>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) notes: Vec<String>,
    /// Key of the route in the section of its host.
    pub(super) pattern: String,
    pub(super) table: Table,
    /// The route refuses all requests, so that other options have no effect.
    pub(super) is_refusal: bool,
    /// The route only leads to another one, and has the options of its host.
    pub(super) has_options_of_host: bool,
}

impl Route {
    pub(super) fn new(pattern: String, table: Table) -> Route {
        Route { pattern, table, ..Route::default() }
    }

    /// Returns a route that refuses all requests.
    pub(super) fn refusal(pattern: String, text: &str, status: u64) -> Route {
        let mut table = Table::default();
        table.set_response(text, status);
        Route { is_refusal: true, ..Route::new(pattern, table) }
    }
}

impl Document {
    /// Returns a section, which is added if it is missing.
    pub(super) fn section(&mut self, name: &'static str) -> &mut Table {
        let at = self.sections.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            self.sections.push((name, Table::default()));
            self.sections.len() - 1
        });
        &mut self.sections[at].1
    }

    /// Returns all tables with values of requests, as a text.
    pub(super) fn text_of_tables(&self) -> String {
        let sections = self.sections.iter().map(|(_, table)| table.show());
        let hosts = self.hosts.iter().map(|host| host.options.show());
        let routes = self.hosts.iter().flat_map(|host| &host.routes);
        sections.chain(hosts).chain(routes.map(|route| route.table.show())).collect()
    }

    /// Formats the file in the layout of `weft fmt`.
    pub(super) fn print(&self) -> String {
        let mut out = self.sections_in_front();
        for host in &self.hosts {
            out.push_str(&format!("\n{}[hosts.{}]\n", comments(&host.notes), quoted(&host.names)));
            host.write(&mut out);
        }
        // The text is valid TOML; otherwise the check of the result reports it.
        format(&out).unwrap_or(out)
    }

    /// Returns the file with each route in one line, and the index of the host and of the route by
    /// the number of the line.
    pub(super) fn print_routes_in_lines(&self) -> (String, BTreeMap<usize, (usize, usize)>) {
        let mut out = self.sections_in_front();
        let mut routes = BTreeMap::new();
        let mut line = 1 + out.matches('\n').count();
        for (host_index, host) in self.hosts.iter().enumerate() {
            let mut options = Table::default();
            options.set_filled("listen", host.listen.clone());
            options.add(&host.options);
            let head = format!("[hosts.{}]\n{}", quoted(&host.names), lines(&options));
            line += head.matches('\n').count();
            out.push_str(&head);
            for (index, route) in host.routes.iter().enumerate() {
                routes.insert(line, (host_index, index));
                let table = show_route(&route.table);
                out.push_str(&format!("{} = {table}\n", quoted(&route.pattern)));
                line += 1;
            }
        }
        (out, routes)
    }

    /// Returns everything in front of the hosts.
    fn sections_in_front(&self) -> String {
        let mut out = comments(&self.notes);
        out.push_str(&lines(&self.top));
        for (name, table) in self.sections.iter().filter(|(_, table)| !table.is_empty()) {
            out.push_str(&format!("\n[{name}]\n{}", lines(table)));
        }
        for (name, table) in &self.maps {
            let name = format!("maps.{}", show_key(name));
            out.push_str(&format!("\n[{name}]\n"));
            let sections = write_entries(table, &name, &mut out);
            out.push_str(&sections);
        }
        for Stream { notes, addresses, options } in &self.streams {
            let name = quoted(addresses);
            out.push_str(&format!("\n{}[streams.{name}]\n{}", comments(notes), lines(options)));
        }
        out
    }
}

/// Maximum length of a line with a table. A longer one becomes a section of its own.
const MAX_LINE: usize = 140;

impl Host {
    /// Writes the keys of the host and its routes, then the sections of long tables.
    fn write(&self, out: &mut String) {
        let name = format!("hosts.{}", quoted(&self.names));
        if !self.listen.is_empty() {
            out.push_str(&format!("listen = {}\n", Value::from(self.listen.clone()).show()));
        }
        let mut sections = write_entries(&self.options, &name, out);
        // Patterns and routes with conditions apply in the order of the file, so that those behind
        // a section are sections, too.
        let mut has_section = false;
        for route in &self.routes {
            let line = format!("{} = {}", quoted(&route.pattern), show_route(&route.table));
            let is_pattern = route.pattern.contains("~ ") || route.table.get("when").is_some();
            let is_long = line.chars().count() > MAX_LINE && !route.table.is_empty();
            if !(is_long || is_pattern && has_section) {
                out.push_str(&format!("{}{line}\n", comments(&route.notes)));
                continue;
            }
            has_section |= is_pattern;
            let name = format!("{name}.{}", quoted(&route.pattern));
            sections.push_str(&format!("\n{}[{name}]\n", comments(&route.notes)));
            let inner = write_entries(&route.table, &name, &mut sections);
            sections.push_str(&inner);
        }
        out.push_str(&sections);
    }
}

/// Writes the entries of a table, and returns the sections of tables that are too long for a line,
/// also of tables in them.
fn write_entries(table: &Table, name: &str, out: &mut String) -> String {
    let mut sections = String::new();
    for (key, value) in &table.0 {
        let line = format!("{} = {}\n", show_key(key), value.show());
        match value {
            Value::Table(inner) if line.chars().count() > MAX_LINE => {
                let name = format!("{name}.{}", show_key(key));
                sections.push_str(&format!("\n[{name}]\n"));
                let nested = write_entries(inner, &name, &mut sections);
                sections.push_str(&nested);
            }
            _ => out.push_str(&line),
        }
    }
    sections
}

fn comments(notes: &[String]) -> String {
    notes.iter().flat_map(|note| note.lines()).map(comment).collect()
}

/// Returns a line as a comment, in several lines if it is too long for one.
pub(crate) fn comment(line: &str) -> String {
    let line = line.replace(char::is_control, " ");
    let (mut out, mut length) = ("#".to_owned(), 1);
    for word in line.trim_end().split(' ') {
        let next = 1 + word.chars().count();
        if length + next > MAX_LINE && length > 3 {
            out.push_str("\n#  ");
            length = 3;
        }
        out.push(' ');
        out.push_str(word);
        length += next;
    }
    out + "\n"
}

fn lines(table: &Table) -> String {
    table.0.iter().map(|(key, value)| format!("{} = {}\n", show_key(key), value.show())).collect()
}

fn show_key(key: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    match !key.is_empty() && key.bytes().all(is_bare) {
        true => key.to_owned(),
        false => quoted(key),
    }
}

/// Formats a route as an operator and its target if it has no other keys, otherwise as a table.
fn show_route(table: &Table) -> String {
    let operator = match &*table.0 {
        [(form, Value::Text(target))] => match &**form {
            "files" => Some(("->", target)),
            "redirect" => Some(("<<", target)),
            "proxy" => Some((">>", target)),
            _ => None,
        },
        _ => None,
    };
    match operator {
        Some((operator, target)) if target.trim() == target && !target.contains(' ') => {
            quoted(&format!("{operator} {target}"))
        }
        _ => Value::Table(table.clone()).show(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_sections_hosts_and_notes() {
        let table = |entries: &[(&str, Value)]| {
            let mut table = Table::default();
            entries.iter().for_each(|(key, value)| table.set(*key, value.clone()));
            table
        };
        let route = |pattern: &str, table: Table| Route {
            notes: vec![format!("about\n{pattern}")],
            pattern: pattern.to_owned(),
            table,
            is_refusal: false,
            has_options_of_host: false,
        };
        let mut document = Document { notes: vec!["a note".to_owned()], ..Document::default() };
        document.top.set("listen", Value::from(["[::]:80"]));
        document.section("tls");
        document.section("log").set("access", Value::from("none"));
        document.hosts.push(Host {
            names: "a.org b.org".to_owned(),
            options: table(&[("compress", Value::Bool(true))]),
            routes: vec![
                route("/", table(&[("files", Value::from("/srv/a \"b\""))])),
                route("/b", table(&[("proxy", Value::from("http://b/"))])),
                route(
                    "/c",
                    table(&[
                        ("respond", Value::from("x\n")),
                        ("status", Value::Number(404)),
                        (
                            "response_headers",
                            Value::Table(table(&[
                                ("X-A", Value::from("b")),
                                ("a b", Value::from("")),
                            ])),
                        ),
                    ]),
                ),
            ],
            ..Host::default()
        });
        let expected = "# a note\nlisten = [\"[::]:80\"]\n\n[log]\naccess = \"none\"\n\n\
            [hosts.\"a.org b.org\"]\ncompress = true\n# about\n# /\n\
            \"/\" = { files = \"/srv/a \\\"b\\\"\" }\n# about\n# /b\n\"/b\" = \">> http://b/\"\n\
            # about\n# /c\n\"/c\" = { respond = \"x\\n\", status = 404, \
            response_headers = { X-A = \"b\", \"a b\" = \"\" } }\n";
        assert_eq!(document.print(), expected);
    }

    #[test]
    fn long_routes_are_sections() {
        let long = |begin: &str| {
            let mut fields = Table::default();
            (0..8).for_each(|it| fields.set(format!("X-Field-{it}"), "a value of it"));
            let mut table = Table::default();
            table.set("respond", begin);
            table.set("response_headers", fields);
            table
        };
        let short = |text: &str| {
            let mut table = Table::default();
            table.set("respond", text);
            table
        };
        let routes = vec![
            Route::new("~ ^/a".to_owned(), short("a")),
            Route::new("~ ^/b".to_owned(), long("b")),
            Route::new("GET ~ ^/c".to_owned(), short("c")),
            Route::new("/".to_owned(), short("d")),
        ];
        let hosts = vec![Host { names: "*".to_owned(), routes, ..Host::default() }];
        let text = Document { hosts, ..Document::default() }.print();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
        // Patterns keep their order; those behind a section are sections.
        let order = [
            "\"~ ^/a\" = {",
            "\"/\" = {",
            "[hosts.\"*\".\"~ ^/b\"]\nrespond = \"b\"\n",
            "[hosts.\"*\".\"~ ^/b\".response_headers]\nX-Field-0 = ",
            "[hosts.\"*\".\"GET ~ ^/c\"]\nrespond = \"c\"\n",
        ];
        assert!(order.map(at).is_sorted(), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= MAX_LINE), "{text}");
    }
}
