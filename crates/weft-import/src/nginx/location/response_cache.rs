//! `proxy_cache`, `fastcgi_cache` and their relatives.

use super::Location;
use crate::document::{Table, Value};
use crate::nginx::tree::Directive;
use crate::values;

/// Time until nginx removes a response that nobody requests, without `inactive`.
const DEFAULT_INACTIVE: &str = "10m";

/// Matches the values that count as true in nginx: neither empty nor `0`.
const IS_TRUE: &str = "~ ^(?:[^0]|0.)";

/// Translates the cache of a location. `prefix` begins the names of the directives.
pub(super) fn translate(location: &Location<'_>, prefix: &str, options: &mut Table) {
    let scope = &location.scope;
    let Some(cache) = scope.one(&format!("{prefix}_cache")).filter(|it| it.arg(0) != "off") else {
        return;
    };
    let names = Names { location, prefix };
    let mut table = Table::default();
    // A response that must not be stored for everybody could be, so that the route has no cache.
    let lost = |reason: &str| location.lost(cache, format!("the route has no cache: {reason}"));
    if cache.arg(0).contains('$') {
        return lost("its zone has variables");
    }
    if let Err(reason) = names.key(&mut table) {
        return lost(&reason);
    }
    if let Err(reason) = names.bypass(&mut table) {
        return lost(&reason);
    }
    let inactive = names.store(cache);
    names.lifetimes(&mut table);
    names.stale(&inactive, &mut table);
    names.uses(&mut table);
    names.ignored_fields(&mut table);
    // nginx estimates no lifetimes, and pays no regard to the `Cache-Control` of clients.
    table.set("heuristic", false);
    table.set("ignore_client", true);
    options.set("response_cache", table);
}

/// The directives of a cache by their names behind the prefix.
struct Names<'l, 'a> {
    location: &'l Location<'a>,
    prefix: &'l str,
}

impl<'a> Names<'_, 'a> {
    fn one(&self, name: &str) -> Option<&'a Directive> {
        self.location.scope.one(&format!("{}_{name}", self.prefix))
    }

    fn all(&self, name: &str) -> Vec<&'a Directive> {
        self.location.scope.all(&[&format!("{}_{name}", self.prefix)])
    }

    fn adapted(&self, directive: &Directive, note: &str) {
        self.location.scope.outcomes.adapted(directive, note);
    }

    /// Reports the difference of the stores. Returns the time for which unused responses are kept.
    fn store(&self, cache: &Directive) -> String {
        let name = format!("{}_cache_path", self.prefix);
        let levels = self.location.scope.levels().iter().flat_map(|level| level.iter());
        let mut paths = levels.filter(|directive| directive.name == name);
        let Some(path) = paths.find(|path| zone(path) == Some(cache.arg(0))) else {
            return DEFAULT_INACTIVE.to_owned();
        };
        self.adapted(
            path,
            "all zones are one store: `memory` in [response_cache] (64 MiB), and what leaves it in \
             `folder`, up to `disk`; files of nginx are not read",
        );
        let inactive = path.parameter("inactive").and_then(values::time);
        inactive.unwrap_or_else(|| DEFAULT_INACTIVE.to_owned())
    }

    /// Translates the key, which has scheme, host, path and query in Weft.
    fn key(&self, table: &mut Table) -> Result<(), String> {
        let Some(key) = self.one("cache_key") else { return Ok(()) };
        let text = key.args.join(" ");
        let (mut fields, mut cookies, mut parameters) = (Vec::new(), Vec::new(), Vec::new());
        let (mut has_path, mut has_query) = (false, false);
        for variable in variables(&text) {
            match variable {
                "scheme" | "host" | "http_host" | "server_name" | "server_port" | "proxy_host"
                | "request_method" | "is_args" => {}
                "request_uri" => (has_path, has_query) = (true, true),
                "uri" | "document_uri" => has_path = true,
                "args" | "query_string" => has_query = true,
                other => match other.split_once('_') {
                    Some(("cookie", name)) => cookies.push(name.to_owned()),
                    Some(("http", name)) => fields.push(name.replace('_', "-")),
                    Some(("arg", name)) => parameters.push(name.to_owned()),
                    _ => return Err(format!("its key has ${other}")),
                },
            }
        }
        if !has_path {
            return Err("its key does not have the path".to_owned());
        }
        for (name, list) in [("key_fields", fields), ("key_cookies", cookies)] {
            if !list.is_empty() {
                table.set(name, list);
            }
        }
        if !has_query {
            table.set("query", parameters);
        }
        self.adapted(key, "the key also has scheme and host");
        Ok(())
    }

    /// Translates the conditions under which responses are not stored, or not looked for. What is
    /// in both is a condition of `bypass`.
    fn bypass(&self, table: &mut Table) -> Result<(), String> {
        let (not_found, not_stored) =
            (self.conditions("cache_bypass")?, self.conditions("no_cache")?);
        let (both, refresh): (Vec<_>, Vec<_>) =
            not_found.into_iter().partition(|condition| not_stored.contains(condition));
        let no_store = not_stored.into_iter().filter(|condition| !both.contains(condition));
        let no_store = no_store.collect();
        for (name, conditions) in [("bypass", both), ("refresh", refresh), ("no_store", no_store)] {
            if !conditions.is_empty() {
                table.set(name, Value::from(conditions));
            }
        }
        Ok(())
    }

    fn conditions(&self, name: &str) -> Result<Vec<Value>, String> {
        let mut conditions = Vec::<Value>::new();
        for directive in self.all(name) {
            for text in &directive.args {
                let condition = self.condition(text)?;
                if !conditions.contains(&condition) {
                    conditions.push(condition);
                }
            }
        }
        Ok(conditions)
    }

    fn condition(&self, text: &str) -> Result<Value, String> {
        let variable = text.strip_prefix('$').unwrap_or_default();
        let (kind, name) = match variable.split_once('_') {
            Some(("cookie", name)) => ("cookie", name.to_owned()),
            Some(("http", name)) if name != "cookie" => ("header", name.replace('_', "-")),
            Some(("arg", name)) => ("query", name.to_owned()),
            _ => match self.location.variables.template(text) {
                Ok(template) if template.contains('{') => ("value", template),
                _ => return Err(format!("{text} is no condition of `bypass`")),
            },
        };
        let mut values = Table::default();
        values.set(&name, IS_TRUE);
        let mut condition = Table::default();
        condition.set(kind, values);
        Ok(Value::from(condition))
    }

    /// Translates the lifetimes of responses that state none.
    fn lifetimes(&self, table: &mut Table) {
        let mut lifetimes = Table::default();
        for directive in self.all("cache_valid") {
            let Some((time, statuses)) = directive.args.split_last() else { continue };
            let Some(time) = values::time(time) else {
                self.location.lost(directive, "a time of 0 has no equivalent");
                continue;
            };
            let statuses = match statuses {
                [] => vec!["200", "301", "302"],
                statuses => statuses.iter().map(String::as_str).collect(),
            };
            for status in statuses {
                let status = if status == "any" { "100-599" } else { status };
                // The first that matches applies, as in nginx.
                if lifetimes.get(status).is_none() {
                    lifetimes.set(status, time.clone());
                }
            }
        }
        if !lifetimes.is_empty() {
            table.set("lifetimes", lifetimes);
        }
    }

    fn stale(&self, inactive: &str, table: &mut Table) {
        let updates = self.one("cache_background_update").is_some_and(|it| it.arg(0) == "on");
        let Some(stale) = self.one("cache_use_stale").filter(|it| it.arg(0) != "off") else {
            return;
        };
        let has = |word: &str| stale.args.iter().any(|arg| arg == word);
        if stale
            .args
            .iter()
            .any(|arg| arg == "error" || arg == "timeout" || arg.starts_with("http_5"))
        {
            table.set("stale_if_error", inactive);
        }
        if has("updating") && updates {
            table.set("stale_while_revalidate", inactive);
        }
        if has("http_403") || has("http_404") || has("http_429") {
            self.adapted(stale, "stale responses replace 500, 502, 503 and 504 only");
        }
        if has("updating") && !updates {
            self.adapted(stale, "requests wait for the update, up to `collapse_timeout`");
        }
    }

    fn uses(&self, table: &mut Table) {
        if let Some(uses) = self.one("cache_min_uses") {
            let count = self.location.scope.outcomes.number(uses, uses.arg(0));
            table.set_some("min_uses", count.map(|count| count.clamp(1, 1_000)));
        }
        let is_locked = self.one("cache_lock").is_some_and(|lock| lock.arg(0) == "on");
        let timeout = self.one("cache_lock_timeout").filter(|_| is_locked);
        table.set_some("collapse_timeout", timeout.and_then(|it| values::time(it.arg(0))));
        if let Some(methods) = self.one("cache_methods")
            && methods.args.iter().any(|method| method == "POST")
        {
            self.location.lost(methods, "responses to POST are not stored");
        }
    }

    fn ignored_fields(&self, table: &mut Table) {
        let Some(ignored) = self.one("ignore_headers") else { return };
        let has = |name: &str| ignored.args.iter().any(|arg| arg.eq_ignore_ascii_case(name));
        if has("Set-Cookie") {
            table.set("store_cookies", true);
        }
        if has("Cache-Control") || has("Expires") || has("Vary") {
            let reason = "the lifetime that a response states, and its `Vary`, always apply";
            self.location.lost(ignored, reason);
        }
    }
}

/// Returns the name of a zone, such as `a` of `keys_zone=a:10m`.
fn zone(path: &Directive) -> Option<&str> {
    path.parameter("keys_zone").and_then(|zone| zone.split(':').next())
}

/// Returns the names of the variables in a text.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).map(|part| {
        let part = part.strip_prefix('{').unwrap_or(part);
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &part[..end.unwrap_or(part.len())]
    })
}
