//! nginx.conf → weft.toml.
//!
//! The directives are read into a tree, with included files in their places. Each location becomes
//! a route with the directives that apply to it, from all blocks around it; then options that all
//! routes have in common move to their host, and options of all hosts to `[defaults]`. A directive
//! that cannot be carried over becomes a comment. A location that cannot be carried over stays as a
//! route that refuses requests, so that its paths do not reach another route.

mod lexer; // words and punctuation
mod tree; // directives, with included files
mod directives; // names that need no translation of their own
mod outcomes; // the outcome of each directive
mod scope; // directives that apply to a location
mod variables; // variables → placeholders
mod global; // blocks to which locations refer
mod process; // addresses, TLS, logs, user
mod listen; // addresses
mod sites; // servers → hosts
mod server; // the routes of a server
mod siblings; // paths beside a prefix
mod location; // a location → a route
mod upstream; // settings of all upstreams
mod client_rules; // addresses of clients
mod maps; // values by the value of a variable
mod field_values; // values of response fields by media type
mod logs; // access logs and the error log
mod log_format; // formats of access logs
mod streams; // TCP and UDP

use std::path::Path;

use super::document::{Document, Host};
use super::{Imported, Target, hoist, regex, validity};
use crate::listeners::{self, Listeners};
use global::Global;
use location::case_routes;
use outcomes::{Outcomes, Report};
use process::Process;
use scope::Scope;
use sites::{Server, Site};
use tree::{Directive, named};

/// Differences from nginx that apply to all configurations, as comments for the beginning of the
/// file. They have no further comments.
pub const DIFFERENCES: &str = "\
# These differences from nginx apply to all routes, and have no further comments:
# - `add_header` and `expires` apply to all statuses, as with `always`, and replace fields of upstreams.
# - Redirects to HTTPS have the status 308, which keeps the method.
# - A prefix matches whole segments: `/app` does not match `/apple`, and `/app/` also matches `/app`.
# - Upstreams get paths without empty segments and dot segments (400 if they are encoded and the path is rewritten), and
#   `X-Forwarded-For` without the value that the client sent.
# - Files whose names begin with a dot, except for `.well-known`, and symbolic links out of their directory, are not served.
# - A directory without an index gets 404, not 403, and its file `404.html` is the page for 404.
# - Names of query parameters in comparisons are case-sensitive, and their values are decoded.
# - Each route counts its own requests for `limit_req` and `limit_conn`: locations with one zone have a limit each.
# - Without `user`, nginx's workers run as `nobody`, and Weft as the user who starts it: set `user` for a start by root.
# - Media types and compressed sizes are those of Weft. `Cache-Control` of `expires` has no `Expires` beside it.

";

/// Converts an `nginx.conf`, with the files that it includes, to a configuration that `target`
/// reads.
///
/// # Errors
/// A message with file, line and column if it cannot be read or parsed.
pub fn import(path: &Path, target: &dyn Target) -> Result<Imported, String> {
    let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
    let main = tree::read(&absolute)?;
    let base = absolute.parent().unwrap_or(Path::new("/")).to_owned();
    let outcomes = Outcomes::default();
    let http = named(&main, "http").next();
    // A file of `conf.d` has the content of the block `http`.
    let http = http.map_or(&*main, Directive::children);
    let global = Global::new(base, http, target);
    let mut servers: Vec<Server<'_>> =
        named(http, "server").map(|directive| Server::new(directive, &outcomes)).collect();
    sites::share_tls(&mut servers);
    let has_streams = named(&main, "stream").next().is_some();
    if servers.is_empty() && !has_streams {
        return Err(format!("{}: there is no server in this configuration", path.display()));
    }
    let mut document = Document::default();
    sites::report_ipv6_only(&servers, &outcomes);
    let sites = sites::sites(&servers, &outcomes);
    let listeners: Vec<Listeners<'_>> = sites
        .iter()
        .map(|site| Listeners { names: &site.names, listeners: &site.listeners })
        .collect();
    let (listening, bound) = listeners::bind(&listeners);
    Process {
        main: &main,
        http,
        servers: &servers,
        listening,
        global: &global,
        outcomes: &outcomes,
    }
    .translate(&mut document);
    let scope = Scope::new(&outcomes).inside(http);
    let mut origins = Vec::new();
    let mut titles = Vec::new();
    for (site, listen) in sites.iter().zip(bound) {
        let (mut host, of_host) = host(site, &servers, &global, &scope);
        host.names = listeners::title(&site.names, &listen, &titles);
        titles.push(host.names.clone());
        host.listen = listen;
        document.hosts.push(host);
        origins.push(of_host);
    }
    let streams = streams::translate(&main, &global, &outcomes, &mut document);
    let is_complete = add_notes(&mut document, &origins, &streams, &main, http, &outcomes);
    global.tables.write(&mut document);
    let is_valid = validity::close_invalid(&mut document, target);
    hoist::hoist(&mut document, target);
    global.tables.write(&mut document);
    Ok(validity::finish(document, is_complete && is_valid, target))
}

/// Servers and locations that a host is made of.
struct Origin<'a> {
    servers: Vec<&'a Directive>,
    /// One for each route.
    locations: Vec<Option<&'a Directive>>,
}

fn host<'a>(
    site: &Site,
    servers: &[Server<'a>],
    global: &'a Global<'a>,
    scope: &Scope<'a>,
) -> (Host, Origin<'a>) {
    let server = &servers[site.server];
    let mut routes = server::routes(global, server, scope);
    let mut origin = Origin { servers: vec![server.directive], locations: Vec::new() };
    if site.is_redirected {
        for (_, route) in &mut routes {
            route.table.set("https_redirect", true);
        }
    }
    if let Some(redirecting) = site.redirecting.map(|index| &servers[index]) {
        origin.servers.push(redirecting.directive);
        note_redirect(redirecting.directive, redirecting, site, scope.outcomes);
        add_unencrypted(&mut routes, redirecting, global, scope);
    }
    let mut host = Host::default();
    for (location, route) in routes {
        origin.locations.push(location);
        host.routes.push(route);
    }
    (host, origin)
}

/// Notes that redirects to HTTPS keep the requested host, if nginx redirects to a fixed host.
fn note_redirect(block: &Directive, server: &Server<'_>, site: &Site, outcomes: &Outcomes) {
    for directive in block.children() {
        note_redirect(directive, server, site, outcomes);
        let host = location::redirect::redirect_host(directive);
        let Some(host) = host.filter(|_| location::redirect::is_redirect_to_https(directive))
        else {
            continue;
        };
        let first = server.names.first().map(String::as_str).unwrap_or_default();
        let host = if host == "$server_name" { first } else { host };
        if site.names.iter().any(|name| name != host) {
            outcomes.adapted(directive, "other hosts are redirected to HTTPS of the same host");
        }
    }
}

/// Adds the locations that a server has besides its redirect to HTTPS.
fn add_unencrypted<'a>(
    routes: &mut Vec<(Option<&'a Directive>, super::document::Route)>,
    redirecting: &Server<'a>,
    global: &'a Global<'a>,
    scope: &Scope<'a>,
) {
    let outcomes = scope.outcomes;
    let mut own = Vec::new();
    let has_expressions = routes.iter().any(|(_, route)| route.pattern.contains("~ "));
    for directive in redirecting.directive.children() {
        if directive.name != "location" {
            outcomes.carried_with_block(directive);
        }
    }
    for (location, mut route) in server::locations(global, redirecting, scope) {
        let directive = location.filter(|_| route.pattern != "/");
        let Some(directive) = directive else {
            location.into_iter().for_each(|location| outcomes.carried_with_block(location));
            continue;
        };
        if route.pattern.starts_with('@') {
            match routes.iter().any(|(_, known)| known.pattern == route.pattern) {
                true => outcomes.lost(directive, "the server with TLS has a location of this name"),
                false => routes.push((location, route)),
            }
            continue;
        }
        if has_expressions && let Some((methods, path)) = siblings::prefix_of_key(&route.pattern) {
            // The expressions of the server with TLS would precede a prefix.
            match siblings::of_whole_path(&route.table, path) {
                Some(table) => {
                    let separator = if methods.is_empty() { "" } else { " " };
                    route.pattern = format!("{methods}{separator}~ ^{}", regex::escape(path));
                    route.table = table;
                }
                None => {
                    let reason = "regular expressions of the server with TLS precede it";
                    outcomes.lost(directive, reason);
                }
            }
        }
        route.table.set("https_redirect", false);
        case_routes::without_tls(&mut route);
        own.push((location, route));
    }
    routes.splice(0..0, own);
}

/// Adds a comment for each directive that was not carried over to its route, its host, or the
/// beginning. Returns true if no directive was lost.
fn add_notes(
    document: &mut Document,
    origins: &[Origin<'_>],
    streams: &[&Directive],
    main: &[Directive],
    http: &[Directive],
    outcomes: &Outcomes,
) -> bool {
    let mut is_complete = true;
    let mut noted = std::collections::BTreeSet::new();
    let mut notes = |directives: &[Directive], noted_id: usize| {
        let mut report = Report::new();
        if noted.insert(noted_id) {
            outcomes.notes(directives, &mut report);
        }
        is_complete &= report.is_complete;
        report.notes
    };
    document.notes.splice(0..0, notes(main, 0));
    if !std::ptr::eq(main, http) {
        document.notes.extend(notes(http, usize::MAX));
    }
    for (stream, server) in document.streams.iter_mut().zip(streams) {
        stream.notes = notes(server.children(), server.id);
    }
    for (host, origin) in document.hosts.iter_mut().zip(origins) {
        for server in &origin.servers {
            host.notes.extend(notes(server.children(), server.id));
        }
        for (route, location) in host.routes.iter_mut().zip(&origin.locations) {
            if let Some(location) = location {
                route.notes = notes(location.children(), location.id);
            }
        }
    }
    is_complete
}
