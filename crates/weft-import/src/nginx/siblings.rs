//! Paths that begin with the prefix of a location, but not at a segment: in nginx, `location /admin`
//! also has the paths `/admins` and `/admin.bak`, which do not belong to the prefix in Weft.

use super::tree::Directive;
use crate::document::{Route, Table, Value};
use crate::regex;

/// Keys of a route that refuse requests, or limit them.
const RESTRICTIONS: [&str; 11] = [
    "allow",
    "deny",
    "basic_auth",
    "forward_auth",
    "client_cert_required",
    "referers",
    "rate",
    "rate_key",
    "burst",
    "max_concurrent_requests",
    "max_body_bytes",
];

/// Returns routes for such paths. If a route of the location has the same meaning for them, they
/// have it, too; otherwise they are refused, unless they have the same contents without a route.
pub(super) fn siblings(
    routes: &[(Option<&Directive>, Route)],
    conditional: &[String],
) -> Vec<Route> {
    let others = routes.iter().find(|(_, route)| route.pattern == "/");
    let others = others.map(|(_, route)| &route.table);
    let mut siblings: Vec<Route> = Vec::new();
    for (_, route) in routes {
        let Some((methods, path)) = prefix_of_key(&route.pattern) else { continue };
        let has_conditions = conditional.contains(&route.pattern);
        let is_needed = has_conditions || !methods.is_empty() || differs(route, path, others);
        if path.ends_with('/') || !is_needed {
            continue;
        }
        let same = of_whole_path(&route.table, path);
        let same = same.filter(|_| !has_conditions && !route.is_refusal);
        // A response to some methods leaves the others open; a route of some methods does not.
        let has_methods = !methods.is_empty() && (refuses(&route.table) || same.is_some());
        let methods = if has_methods { format!("{methods} ") } else { String::new() };
        let rest = regex::beside(&rests_of_longer(routes, path));
        let key = format!("{methods}~ ^{}{rest}", regex::escape(path));
        if siblings.iter().any(|sibling| sibling.pattern == key) {
            continue;
        }
        let note = format!("These paths have the location `{path}` in nginx.");
        let sibling = match same {
            Some(table) => Route::new(key, table),
            None => Route::refusal(key, "", 403),
        };
        siblings.push(Route { notes: vec![note], ..sibling });
    }
    siblings
}

/// Returns true if the route of other paths permits more than a route, or has other files.
fn differs(route: &Route, path: &str, others: Option<&Table>) -> bool {
    let rules = |table: Option<&Table>| RESTRICTIONS.map(|key| table?.get(key).cloned());
    let files = |table: &Table| match table.get("files") {
        Some(Value::Text(folder)) => Some(folder.trim_end_matches('/').to_owned()),
        _ => None,
    };
    let own_files = files(&route.table);
    let has_other_files = match others {
        None => false,
        // A file of `/` with such a path has other contents.
        Some(others) => match files(others) {
            Some(root) => own_files != Some(format!("{root}{path}")),
            None => own_files.is_some(),
        },
    };
    let permits_more = route.is_refusal || refuses(&route.table);
    permits_more || rules(Some(&route.table)) != rules(others) || has_other_files
}

fn refuses(table: &Table) -> bool {
    matches!(table.get("status"), Some(Value::Number(status)) if *status >= 400)
}

/// Returns the table of a prefix for an expression, with which files and upstreams get the whole
/// path; `None` if it has another meaning there.
pub(super) fn of_whole_path(table: &Table, path: &str) -> Option<Table> {
    let mut table = table.clone();
    let is_text = table.get("respond").is_some() || table.get("empty_gif").is_some();
    if table.get("rewrite").is_some() || table.mentions("{rest}") {
        return None;
    }
    if let Some(Value::Text(folder)) = table.get("files").cloned() {
        let root =
            folder.strip_suffix(path.trim_end_matches('/')).filter(|root| !root.is_empty())?;
        let is_plain = ["php", "fallback", "try_files", "index", "list"];
        if is_plain.iter().any(|key| table.get(key).is_some()) {
            return None;
        }
        table.set("files", root);
        return Some(table);
    }
    let Some(proxy) = table.get("proxy").cloned() else { return is_text.then_some(table) };
    let urls = match proxy {
        Value::List(urls) => urls,
        url => vec![url],
    };
    let whole = |url: Value| {
        let Value::Text(text) = url else { return None };
        let (url, options) = match text.split_once(' ') {
            Some((url, options)) => (url, format!(" {options}")),
            None => (&*text, String::new()),
        };
        let origin = url.strip_suffix(path)?;
        Some(match origin.strip_suffix(':').filter(|it| it.starts_with("unix:")) {
            Some(socket) => format!("{socket}{options}"),
            None => format!("{origin}/{options}"),
        })
    };
    let urls: Option<Vec<String>> = urls.into_iter().map(whole).collect();
    table.set("proxy", Value::one_or_list(urls?));
    Some(table)
}

/// Returns the parts of longer prefixes behind a prefix.
fn rests_of_longer<'a>(routes: &'a [(Option<&Directive>, Route)], path: &str) -> Vec<&'a str> {
    let rest = |(_, Route { pattern, .. }): &'a (Option<&Directive>, Route)| {
        let (_, longer) = prefix_of_key(pattern)?;
        longer.strip_prefix(path).filter(|rest| !rest.is_empty())
    };
    routes.iter().filter_map(rest).collect()
}

/// Returns the methods and the prefix of a key `/PREFIX` or `METHODS /PREFIX`; `None` for other
/// keys.
pub(super) fn prefix_of_key(key: &str) -> Option<(&str, &str)> {
    let (methods, path) = key.split_once(' ').unwrap_or(("", key));
    let is_method = |byte: u8| byte.is_ascii_uppercase() || byte == b',';
    (methods.bytes().all(is_method) && path.starts_with('/')).then_some((methods, path))
}
