//! The order in which Caddy runs the directives of a block. Pure.

use super::tree::Directive;

/// Directives in the order in which a request meets them.
const ORDER: [&str; 40] = [
    "tracing",
    "map",
    "vars",
    "fs",
    "root",
    "log_append",
    "skip_log",
    "log_skip",
    "log_name",
    "header",
    "copy_response_headers",
    "request_body",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "invoke",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
    "log",
    "handle_errors",
];

/// The order of directives, which the global option `order` changes.
pub(super) struct Order(Vec<String>);

impl Order {
    pub(super) fn new(global: &[Directive]) -> Order {
        let mut order = Order(ORDER.map(str::to_owned).into());
        for directive in global.iter().filter(|directive| directive.name == "order") {
            order.change(directive);
        }
        order
    }

    fn change(&mut self, directive: &Directive) {
        let [name, position, rest @ ..] = &*directive.args else { return };
        self.0.retain(|known| known != name);
        let place = |other: &String| self.0.iter().position(|known| known == other);
        let at = match (&**position, rest.first()) {
            ("first", _) => 0,
            ("before", Some(other)) => place(other).unwrap_or(self.0.len()),
            ("after", Some(other)) => place(other).map_or(self.0.len(), |at| at + 1),
            _ => self.0.len(),
        };
        self.0.insert(at, name.clone());
    }

    /// Sorts directives by their names, and equal ones by their matchers.
    pub(super) fn sort<'a>(&self, block: &'a [Directive]) -> Vec<&'a Directive> {
        let is_run = |directive: &&Directive| !directive.name.starts_with('@');
        let mut sorted: Vec<&Directive> = block.iter().filter(is_run).collect();
        // The comparison is no order: of paths and other matchers, neither comes first. The result
        // is the one of Caddy, which inserts each directive among those before it.
        for index in 1..sorted.len() {
            let mut at = index;
            while at > 0 && self.is_less(sorted[at], sorted[at - 1], block) {
                sorted.swap(at, at - 1);
                at -= 1;
            }
        }
        sorted
    }

    fn is_less(&self, one: &Directive, other: &Directive, block: &[Directive]) -> bool {
        let ranks = (self.rank(&one.name), self.rank(&other.name));
        if ranks.0 != ranks.1 {
            return ranks.0 < ranks.1;
        }
        match (single_path(one, block), single_path(other, block)) {
            (Some(path), Some(other)) => {
                let trimmed = |path: &str| path.strip_suffix('*').unwrap_or(path).len();
                match path.trim_end_matches('*') == other.trim_end_matches('*') {
                    // Without a wildcard, a path is more specific.
                    true => path.len() < other.len(),
                    false => trimmed(path) > trimmed(other),
                }
            }
            _ => has_matcher(one) && !has_matcher(other),
        }
    }

    fn rank(&self, name: &str) -> usize {
        // Both kinds of handlers exclude each other, and are sorted together.
        let name = if name == "handle_path" { "handle" } else { name };
        // An unknown directive may protect what follows.
        self.0.iter().position(|known| known == name).map_or(0, |at| at + 1)
    }
}

/// Returns the path of a matcher that has only one.
fn single_path<'a>(directive: &'a Directive, block: &'a [Directive]) -> Option<&'a str> {
    let first = directive.arg(0);
    match first.starts_with('/') {
        true => Some(first),
        false => only_path(first, block),
    }
}

fn has_matcher(directive: &Directive) -> bool {
    directive.arg(0).starts_with(['/', '@'])
}

/// Returns the path of a named matcher that has only one.
fn only_path<'a>(name: &str, block: &'a [Directive]) -> Option<&'a str> {
    let matcher = block.iter().find(|directive| directive.name == name)?;
    let of_line = matcher.args.iter().skip(1).filter(|_| matcher.arg(0) == "path");
    let mut paths = of_line.chain(matcher.named("path").flat_map(|it| &it.args));
    let first = paths.next()?;
    paths.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directive(text: &str) -> Directive {
        let mut words = text.split(' ').map(str::to_owned);
        let name = words.next().unwrap();
        Directive { name, args: words.collect(), ..Directive::default() }
    }

    #[test]
    fn sorts_by_name_and_then_by_path() {
        let block: Vec<Directive> = [
            "file_server",
            "respond /a/* 1",
            "handle_path /x/* a",
            "respond 2",
            "respond /a/b/* 3",
            "@p path /long/path/*",
            "respond @p 4",
            "@q method GET",
            "plugin",
            "respond @q 5",
            "handle /xyz/* b",
            "root * /srv",
        ]
        .map(directive)
        .into();
        let sorted = |order: &Order| -> Vec<String> {
            order.sort(&block).iter().map(|it| it.text()).collect()
        };
        let by_default = sorted(&Order::new(&[]));
        assert_eq!(
            by_default,
            [
                "plugin",
                "root * /srv",
                "handle /xyz/* b",
                "handle_path /x/* a",
                "respond @p 4",
                "respond /a/b/* 3",
                "respond /a/* 1",
                "respond @q 5",
                "respond 2",
                "file_server",
            ]
        );
        let global = [directive("order file_server first")];
        assert_eq!(sorted(&Order::new(&global))[1], "file_server");
        let global = [directive("order respond before root")];
        assert_eq!(sorted(&Order::new(&global))[1], "respond @p 4");
    }
}
