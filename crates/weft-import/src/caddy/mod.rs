//! Caddyfile → weft.toml.
//!
//! The directives are read into a tree, with snippets and included files in their places. The paths
//! of all matchers divide the paths of a site into regions. For each region and each named method,
//! the directives are evaluated in Caddy's order, so that a route is the whole response to its
//! requests. A directive that cannot be carried over becomes a comment; if it may protect
//! something, its paths are refused.

mod lexer; // words
mod tree; // directives, with snippets and included files
mod order; // the order of directives
mod region; // sets of paths
mod matcher; // conditions of directives
mod notes; // comments
mod users; // users and hashed passwords
mod outcome; // the response to a case
mod values; // placeholders and maps
mod chain; // the state of an evaluation
mod handlers; // directives that handle requests
mod runner; // directives of blocks
mod decision; // the outcome of a case
mod route; // an outcome → a route
mod errors; // pages of errors
mod site; // a site → hosts
mod addresses; // addresses of sites
mod tls; // certificates
mod logs; // access logs
mod global; // global options

use std::path::{Path, PathBuf};

use super::document::{Document, Host};
use super::listeners::{self, Listeners};
use super::{Imported, Target, hoist, validity};
use addresses::{Part, Site};
use chain::Context;
use global::Global;
use notes::Notes;
use order::Order;
use site::SiteOptions;
use tls::Tls;
use tree::Directive;
use users::Users;
use values::maps::Maps;

/// Differences from Caddy that apply to all configurations, as comments for the beginning of the
/// file. They have no further comments.
pub const DIFFERENCES: &str = "\
# These differences from Caddy apply to all routes, and have no further comments:
# - A prefix also matches the path without its slash: `/app/` also matches `/app`.
# - Prefixes distinguish upper and lower case, unless they restrict access.
# - `header` applies to all statuses, and replaces fields of upstreams. `GET` includes HEAD.
# - Files whose names begin with a dot, except for `.well-known`, and symbolic links out of their directory, are not served.
# - The text of scripts is not served. A file `404.html` is the page for 404.
# - A host without a site gets 404, not an empty response. `*.example.org` is any number of labels.
# - Request bodies have at most 16 MiB, unless `max_body_bytes` is set.
# - Files are compressed without `encode`. Media types are those of Weft.

";

/// Files of users, with their contents, that an imported configuration needs.
pub type UserFiles = Vec<(PathBuf, String)>;

/// Converts a Caddyfile to a configuration that `target` reads. Users and hashed passwords are to
/// be written to `users` and further files beside it; without `users`, their paths are refused.
///
/// # Errors
/// A message with file and line if it cannot be read or parsed.
pub fn import(
    path: &Path,
    users: Option<&Path>,
    target: &dyn Target,
) -> Result<(Imported, UserFiles), String> {
    let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
    let items = tree::read(&absolute, &|name| std::env::var(name).ok())?;
    let options = items.iter().find(|item| item.name.is_empty()).map(Directive::children);
    let options = options.unwrap_or_default();
    let users = users.map(std::path::absolute).transpose().map_err(|error| error.to_string())?;
    let context = Context {
        target,
        order: Order::new(options),
        notes: Notes::default(),
        users: Users::new(users.as_deref()),
        maps: Maps::default(),
        base: absolute.parent().unwrap_or(Path::new("/")).to_owned(),
    };
    let global = Global::new(options);
    let mut document = Document::default();
    global::translate(options, &context.notes, &mut document);
    let (sites, parts) = addresses::sites(&items, &global, &context.notes);
    document.notes = context.notes.take();
    if sites.is_empty() {
        return Err(format!("{}: there is no site in this file", path.display()));
    }
    add_hosts(&context, &global, &sites, &parts, &mut document)?;
    context.maps.write(&mut document);
    let is_valid = validity::close_invalid(&mut document, target);
    hoist::hoist(&mut document, target);
    context.maps.write(&mut document);
    let is_complete = is_valid && !context.notes.has_loss();
    Ok((validity::finish(document, is_complete, target), context.users.into_files()))
}

/// Adds the hosts of all sites, with their addresses and certificates.
fn add_hosts<'a>(
    context: &'a Context<'a>,
    global: &Global,
    sites: &[Site<'a>],
    parts: &[Part],
    document: &mut Document,
) -> Result<(), String> {
    let mut tls = Tls::default();
    let mut has_log = false;
    let mut found: Vec<(Vec<String>, Host, &Site<'a>)> = Vec::new();
    for site in sites {
        let access_log = logs::access_log(site.block, &context.notes, document);
        has_log |= access_log.is_some();
        let required = tls.add(site, global, &context.notes, document);
        let options = SiteOptions {
            access_log,
            needs_certificate: required == Some(true),
            is_refused: required.is_none() || site.is_refused,
        };
        for (names, mut host) in site::hosts(context, site, &options)? {
            site::refuse_parts(context, parts, &names, &mut host);
            found.push((names, host, site));
        }
    }
    let all: Vec<Listeners<'_>> = found
        .iter()
        .map(|(names, _, site)| Listeners { names, listeners: &site.listeners })
        .collect();
    let (listening, bound) = listeners::bind(&all);
    let mut titles = Vec::new();
    for ((names, mut host, _), listen) in found.iter_mut().map(take).zip(bound) {
        host.names = listeners::title(names, &listen, &titles);
        titles.push(host.names.clone());
        host.listen = listen;
        document.hosts.push(host);
    }
    document.top.set_filled("listen", listening.plain);
    if !has_log {
        document.section("log").set("access", "none");
    }
    document.section("tls").set_filled("listen", listening.tls);
    tls.write(document);
    Ok(())
}

type FoundHost<'s, 'a> = (Vec<String>, Host, &'s Site<'a>);

fn take<'f, 's, 'a>(found: &'f mut FoundHost<'s, 'a>) -> (&'f [String], Host, ()) {
    (&found.0, std::mem::take(&mut found.1), ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_target::TestTarget;

    /// Imports a Caddyfile, and returns the text without its beginning, and if nothing was lost.
    fn imported(text: &str) -> Result<(String, bool), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Caddyfile");
        std::fs::write(&path, text).unwrap();
        let (imported, _) = import(&path, None, &TestTarget)?;
        Ok((imported.text, imported.is_complete))
    }

    #[test]
    fn conditions_beyond_the_limit_refuse() {
        let rules = |count: usize| -> String {
            let rule = |it: usize| format!("@m{it} header X-{it} a\nheader @m{it} X-{it} b\n");
            let rules: String = (0..count).map(rule).collect();
            format!("http://a.org {{\nroot * /srv\n{rules}file_server\n}}\n")
        };
        let (text, is_complete) = imported(&rules(4)).unwrap();
        assert_eq!(text.matches("when = ").count(), 15, "{text}");
        assert!(text.contains("-> /srv") && is_complete, "{text}");
        let (text, is_complete) = imported(&rules(6)).unwrap();
        assert!(text.contains("-> /srv") && !is_complete, "{text}");
        // Rules that protect something are not dropped.
        let refusals = rules(6).replace("header @m5 X-5 b", "respond @m5 403");
        let (text, is_complete) = imported(&refusals).unwrap();
        assert!(text.contains("status = 403") && !text.contains("-> /srv"), "{text}");
        assert!(!is_complete);
        let (text, is_complete) = imported(&rules(7)).unwrap();
        assert!(text.contains("status = 403") && !is_complete, "{text}");
        assert!(!text.contains("/srv\""), "{text}");
    }

    /// Caddy changes the path of a missing file before it looks for a handler.
    #[test]
    fn handlers_behind_try_files_are_refused() {
        let site = |first: &str| {
            let handle = "handle /api/* {\nreverse_proxy 127.0.0.1:1\n}";
            format!("http://a.org {{\nroot * /srv\n{first}\n{handle}\nfile_server\n}}\n")
        };
        let (text, is_complete) = imported(&site("try_files {path} /index.html")).unwrap();
        assert!(!text.contains("127.0.0.1:1") && !is_complete, "{text}");
        let (text, is_complete) = imported(&site("")).unwrap();
        assert!(text.contains("127.0.0.1:1") && is_complete, "{text}");
    }

    #[test]
    fn users_without_a_file_refuse() {
        let site = |rule: &str| format!("http://a.org {{\nroot * /srv\n{rule}\nfile_server\n}}\n");
        let (text, is_complete) = imported(&site("basic_auth {\nalice $2a$04$x\n}")).unwrap();
        assert!(text.contains("status = 403") && text.contains("--users"), "{text}");
        assert!(!is_complete);
        let (text, is_complete) = imported(&site("encode gzip")).unwrap();
        assert!(text.contains("\"/\" = \"-> /srv\"") && is_complete, "{text}");
    }

    #[test]
    fn what_has_no_equivalent_stays_closed() {
        for (text, refusal) in [
            // An address with a path.
            ("http://a.org/x/* {\nrespond 403\n}\nhttp://a.org {\nROOT}", "\"~ (?i)^/x/\" = {"),
            // An expression that is invalid here.
            ("http://a.org {\n@x path_regexp (?=a)\nrespond @x 403\nROOT}", "\"/\" = {"),
            // The address in a field.
            (
                "http://a.org {\n@x not remote_ip forwarded 10.0.0.0/8\nrespond @x 403\nROOT}",
                "\"/\" = {",
            ),
            // A named route, and an unknown matcher.
            ("&(n) {\nrespond 403\n}\nhttp://a.org {\ninvoke n\nROOT}", "\"/\" = {"),
            ("http://a.org {\nrespond @none 403\nROOT}", "\"/\" = {"),
        ] {
            let files = "root * /srv\nfile_server\n}\n";
            let (text, is_complete) = imported(&text.replace("ROOT}", files)).unwrap();
            let refused = format!("{refusal} respond = \"\", status = 403 }}");
            assert!(text.contains(&refused) && !is_complete, "{refused}\n{text}");
        }
    }

    #[test]
    fn hidden_files_stay_hidden_in_exact_paths() {
        let site = |path: &str| {
            let rules = format!("header {path} X-A b\nfile_server {{\nhide *.sql\n}}\n");
            imported(&format!("http://a.org {{\nroot * /srv\n{rules}}}\n")).unwrap().0
        };
        let exact = "\"~ (?i)^/a\\\\.sql$\" = { respond = \"\", status = 404";
        assert!(site("/a.sql").contains(exact), "{}", site("/a.sql"));
        assert!(!site("/a.txt").contains("a\\\\.txt$\" = { respond"), "{}", site("/a.txt"));
    }

    /// The names of `hide` are names of files.
    #[test]
    fn hidden_names_do_not_apply_to_proxies() {
        for (rule, key) in [("hide secret.txt", "\"~ (?i)^/api/\""), ("index a.html", "\"/api/\"")]
        {
            let files = format!("root * /srv\nfile_server {{\n{rule}\n}}\n");
            let proxy = "reverse_proxy /api/* 127.0.0.1:3000\n";
            let (text, _) = imported(&format!("http://a.org {{\n{proxy}{files}}}\n")).unwrap();
            let at = text.find(&format!("{key} = ")).unwrap_or_else(|| panic!("{text}"));
            let hidden = text.find("secret").filter(|_| rule.starts_with("hide"));
            assert!(hidden.is_none_or(|hidden| at < hidden), "{text}");
        }
    }

    /// The address of an application has no scheme.
    #[test]
    fn applications_without_an_address_are_refused() {
        for (address, is_known) in [("app:9000", true), ("https://app:9000", false)] {
            let site =
                format!("http://a.org {{\nreverse_proxy {address} {{\ntransport fastcgi\n}}\n}}\n");
            let (text, is_complete) = imported(&site).unwrap();
            assert_eq!(
                (text.contains("fastcgi = \"app:9000\""), is_complete),
                (is_known, is_known)
            );
            assert_eq!(text.contains("status = 403"), !is_known, "{text}");
        }
    }

    #[test]
    fn hidden_files_are_in_no_listing() {
        for (hidden, has_listings) in [("secret *.pem", false), (".git", true)] {
            let site = format!(
                "http://a.org {{\nroot * /srv\nfile_server browse {{\nhide {hidden}\n}}\n}}\n"
            );
            let (text, is_complete) = imported(&site).unwrap();
            assert_eq!(text.contains("list = true"), has_listings, "{text}");
            assert_eq!(is_complete, has_listings, "{text}");
        }
    }

    #[test]
    fn sets_of_paths_have_a_limit() {
        let site = |count: usize| -> String {
            let rule = |it: usize| format!("respond /p{it} \"{it}\"\n");
            format!("http://a.org {{\n{}}}\n", (0..count).map(rule).collect::<String>())
        };
        assert!(imported(&site(100)).is_ok());
        let error = imported(&site(region::MAX_REGIONS)).unwrap_err();
        assert!(error.starts_with("Caddyfile:1: the matchers of a site make more than"), "{error}");
    }

    #[test]
    fn files_without_a_site_are_errors() {
        assert!(imported("{\nadmin off\n}\n").is_err());
        assert!(imported("http://a.org {\nrespond a\n").is_err());
        assert!(imported("http://a.org {\nrespond a\n}\n}\n").is_err());
        assert!(imported("http://a.org {\nrespond {$WEFT_NO_SUCH_VARIABLE}\n}\n").is_err());
        assert!(imported("http://a.org {\nrespond {$WEFT_NO_SUCH_VARIABLE:b}\n}\n").is_ok());
    }
}
