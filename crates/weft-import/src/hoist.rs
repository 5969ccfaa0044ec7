//! Moves options that all routes of a host have to the host, and options that all hosts have to
//! `[defaults]`.

use super::Target;
use super::document::{Document, Table};

/// Moves common options outward. Routes that refuse all requests need none, and do not count.
pub(super) fn hoist(document: &mut Document, target: &dyn Target) {
    for host in &mut document.hosts {
        let routes = host.routes.iter_mut();
        let routes = routes.filter(|route| !route.is_refusal && !route.has_options_of_host);
        let mut tables: Vec<&mut Table> = routes.map(|route| &mut route.table).collect();
        host.options = common(&mut tables, target);
    }
    if document.hosts.len() > 1 {
        let mut tables: Vec<&mut Table> =
            document.hosts.iter_mut().map(|host| &mut host.options).collect();
        let defaults = common(&mut tables, target);
        *document.section("defaults") = defaults;
    }
}

/// Removes the options that all tables have with the same values, and returns them.
fn common(tables: &mut [&mut Table], target: &dyn Target) -> Table {
    let mut found = Table::default();
    let Some((first, others)) = tables.split_first() else { return found };
    for key in first.keys().filter(|key| target.is_option(key)) {
        if let Some(value) = first.get(key)
            && others.iter().all(|table| table.get(key) == Some(value))
        {
            found.set(key, value.clone());
        }
    }
    for key in found.keys() {
        tables.iter_mut().for_each(|table| table.remove(key));
    }
    found
}
