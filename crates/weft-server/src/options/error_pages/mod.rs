//! Pages for errors.

pub(super) mod files; // pages in files that may change
mod routes; // pages that other routes respond with

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use weft::StatusCode;
use weft::middleware::ErrorPages;
use weft_config::{ConfigResult, Key, Pair, ValueKind, quoted_table};

use self::files::{pages, read};
use self::routes::RoutePages;
use super::fields::statuses::Statuses;
use super::layer::{Layer, OpenContext};
use super::scope::{Finding, Scope};
use super::{RouteOption, RouteOptions, show};
use crate::base::script_files::SentFile;

/// The page for errors of some statuses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ErrorPage {
    of: Statuses,
    status: PageStatus,
    source: PageSource,
}

/// Status of the response with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PageStatus {
    OfError,
    Changed(StatusCode),
    /// The status of the response of a route.
    OfRoute,
}

impl PageStatus {
    /// Returns the status of the page for an error.
    fn of(self, error: StatusCode) -> StatusCode {
        match self {
            PageStatus::OfError | PageStatus::OfRoute => error,
            PageStatus::Changed(status) => status,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PageSource {
    /// The built-in page, in place of an inherited one.
    Default,
    File(PathBuf),
    /// URL of a redirect.
    Url(String),
    /// Name of a route of the same host, without its `@`.
    Route(String),
}

/// Pages for errors, which are inherited status by status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ErrorPageOptions {
    list: Vec<ErrorPage>,
    intercepts: Option<bool>,
}

impl ErrorPageOptions {
    /// Returns true if an error has a page.
    pub(crate) fn has_pages(&self) -> bool {
        !self.list.is_empty()
    }

    /// Creates the middleware for errors without a route; `None` without pages.
    pub(crate) fn middleware(&self) -> Option<ErrorPages> {
        self.has_pages().then(|| pages(&self.list))
    }

    /// Files of pages, which clients get as they are.
    pub(crate) fn sent_files(&self) -> impl Iterator<Item = SentFile<'_>> {
        let remedy =
            "a route runs it: { \"404\" = \"@errors\" }, and \"@errors\" = { rewrite = \"/PATH\" }";
        let file = move |path| SentFile { key: Self::KEYS[0].name, path, remedy };
        self.files().into_iter().map(file)
    }

    fn files(&self) -> BTreeSet<&Path> {
        let files = self.list.iter().filter_map(|page| match &page.source {
            PageSource::File(path) => Some(&**path),
            PageSource::Default | PageSource::Url(_) | PageSource::Route(_) => None,
        });
        files.collect()
    }

    /// Returns the reasons for which files of pages cannot be read.
    pub(crate) fn missing_files(&self) -> impl Iterator<Item = String> {
        self.files().into_iter().filter_map(|path| read(path).err())
    }

    /// Names of the routes that respond with pages.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &str> {
        self.list.iter().filter_map(|page| match &page.source {
            PageSource::Route(name) => Some(&**name),
            PageSource::Default | PageSource::Url(_) | PageSource::File(_) => None,
        })
    }
}

impl RouteOption for ErrorPageOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "error_pages",
            flag: "error-page",
            argument: "STATUS=FILE",
            help: "pages for errors by status: `{ \"404\" = \"404.html\", \"500 503\" = FILE, \"5xx\" = FILE, \
                   \"410 =404\" = FILE }` (with another status), a URL (302), a route such as @errors, or \
                   default for the built-in page; inherited status by status",
            kind: ValueKind::Pairs(set_error_pages),
            show: |options| {
                let pair = |page: &ErrorPage| {
                    let status = match page.status {
                        PageStatus::OfError => String::new(),
                        PageStatus::Changed(status) => format!(" ={}", status.as_str()),
                        PageStatus::OfRoute => " =".to_owned(),
                    };
                    (format!("{}{status}", page.of), page.source.to_text())
                };
                quoted_table(options.list.iter().map(pair))
            },
        },
        Key {
            name: "intercept_errors",
            help: "use `error_pages` also in place of error responses of upstreams and scripts (false)",
            kind: ValueKind::Bool(|options, switch| options.intercepts = Some(switch)),
            show: |options| show(options.intercepts.as_ref()),
            ..Key::FILE_ONLY
        },
    ];

    fn or(self, outer: &Self) -> Self {
        ErrorPageOptions {
            list: inherit(self.list, &outer.list),
            intercepts: self.intercepts.or(outer.intercepts),
        }
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let has_pages = scope.any(|all| all.error_pages.has_pages());
        vec![(
            self.intercepts == Some(true) && !has_pages,
            "`intercept_errors` has no effect without `error_pages`",
        )]
    }

    fn open(&self, all: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let intercepts = self.intercepts == Some(true);
        let pages = self.middleware();
        let pages = pages.map(|pages| if intercepts { pages.intercept() } else { pages });
        let own_fields = || {
            all.forward_auth
                .copied()
                .iter()
                .chain(all.request_headers.own_names())
                .cloned()
                .collect()
        };
        let of_routes =
            self.routes().next().map(|_| RoutePages::layer(&self.list, intercepts, own_fields()));
        Ok(pages.map(Layer::of_middleware).into_iter().chain(of_routes).collect())
    }
}

/// The word for the built-in page. A file of this name is written `./default`.
const DEFAULT: &str = "default";

impl PageSource {
    fn new(value: &str, base: &Path) -> PageSource {
        match value {
            DEFAULT => PageSource::Default,
            route if route.starts_with('@') => PageSource::Route(route[1..].to_owned()),
            url if url.starts_with("https://") || url.starts_with("http://") => {
                PageSource::Url(url.to_owned())
            }
            path => PageSource::File(base.join(path)),
        }
    }

    fn to_text(&self) -> String {
        match self {
            PageSource::Default => DEFAULT.to_owned(),
            PageSource::File(path) => path.to_string_lossy().into_owned(),
            PageSource::Url(url) => url.clone(),
            PageSource::Route(name) => format!("@{name}"),
        }
    }
}

fn set_error_pages(options: &mut ErrorPageOptions, pairs: Vec<Pair>) -> ConfigResult {
    let mut pages: Vec<ErrorPage> = Vec::new();
    for Pair { name, value, base } in pairs {
        let (statuses, status) = split_status(&name.value).map_err(|text| name.problem(text))?;
        let source = PageSource::new(&value.value, &base);
        if let PageSource::Url(url) = &source
            && !url.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(value.problem(format!("{url:?} has a byte that must be percent-encoded")));
        }
        if status == PageStatus::OfRoute && !matches!(source, PageSource::Route(_)) {
            let message = "expected a status with a page behind `=`; only a route has its own";
            return Err(name.problem(message));
        }
        for of in statuses {
            if pages.iter().any(|page| page.of == of) {
                return Err(name.problem(format!("the status {of} has two pages")));
            }
            pages.push(ErrorPage { of, status, source: source.clone() });
        }
    }
    options.list = pages;
    Ok(())
}

/// Splits `404 410 =200` into the statuses of errors and the status of their page.
fn split_status(text: &str) -> Result<(Vec<Statuses>, PageStatus), String> {
    let (list, changed) = match text.split_once('=') {
        None => (text, PageStatus::OfError),
        Some((list, "")) => (list, PageStatus::OfRoute),
        Some((list, changed)) => {
            let status = changed.trim().parse().ok().filter(|status: &StatusCode| {
                matches!(status.as_u16(), 200..=599) && !matches!(status.as_u16(), 204 | 205 | 304)
            });
            let invalid = || format!("expected a status with a page behind `=`, found {changed:?}");
            (list, PageStatus::Changed(status.ok_or_else(invalid)?))
        }
    };
    let statuses = Statuses::parse_list(list)?;
    match statuses.iter().find(|of| !of.are_errors()) {
        Some(of) => Err(format!("{of} is no error; pages are for 400 to 599")),
        None => Ok((statuses, changed)),
    }
}

/// Adds the pages of `outer` for statuses without a page of their own.
fn inherit(mut own: Vec<ErrorPage>, outer: &[ErrorPage]) -> Vec<ErrorPage> {
    let inherited: Vec<_> = outer
        .iter()
        .filter(|page| !own.iter().any(|known| known.of.covers(page.of)))
        .cloned()
        .collect();
    own.extend(inherited);
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_config::{ConfigLocation, Located};

    fn pages(pairs: &[(&str, &str)]) -> Result<Vec<ErrorPage>, String> {
        let at = |text: &str| Located { location: ConfigLocation::Unknown, value: text.to_owned() };
        let pair = |(name, value): &(&str, &str)| Pair {
            name: at(name),
            value: at(value),
            base: "/etc".into(),
        };
        let mut options = ErrorPageOptions::default();
        set_error_pages(&mut options, pairs.iter().map(pair).collect())
            .map_err(|problem| problem.message)?;
        Ok(options.list)
    }

    fn shown(list: Vec<ErrorPage>) -> String {
        (ErrorPageOptions::KEYS[0].show)(&ErrorPageOptions { list, intercepts: None })
    }

    #[test]
    fn parses_and_shows_pages() {
        for (name, value, expected) in [
            ("404", "e.html", Ok("{ \"404\" = \"/etc/e.html\" }")),
            ("500 5xx", "/e", Ok("{ \"500\" = \"/e\", \"5xx\" = \"/e\" }")),
            ("404 =200", "e.gif", Ok("{ \"404 =200\" = \"/etc/e.gif\" }")),
            ("403", "https://a/b", Ok("{ \"403\" = \"https://a/b\" }")),
            ("403", "default", Ok("{ \"403\" = \"default\" }")),
            ("403", "./default", Ok("{ \"403\" = \"/etc/./default\" }")),
            ("403 403", "e", Err("the status 403 has two pages")),
            ("301", "e", Err("301 is no error; pages are for 400 to 599")),
            ("404 =304", "e", Err("expected a status with a page behind `=`, found \"304\"")),
            (
                "404 =",
                "e",
                Err("expected a status with a page behind `=`; only a route has its own"),
            ),
            ("404", "@e", Ok("{ \"404\" = \"@e\" }")),
            ("404 =", "@e", Ok("{ \"404 =\" = \"@e\" }")),
            ("404 =200", "@e", Ok("{ \"404 =200\" = \"@e\" }")),
            ("404", "./@e", Ok("{ \"404\" = \"/etc/./@e\" }")),
            (
                "403",
                "https://a/ b",
                Err("\"https://a/ b\" has a byte that must be percent-encoded"),
            ),
            (
                "x",
                "e",
                Err("expected statuses such as 404 or 5xx, separated by spaces, found \"x\""),
            ),
        ] {
            let found = pages(&[(name, value)]).map(shown);
            assert_eq!(found.as_deref().map_err(|error| &**error), expected, "{name}");
        }
    }

    #[test]
    fn inherits_pages_of_other_statuses() {
        for (own, outer, expected) in [
            (
                &[("404", "a")][..],
                &[("404", "b"), ("500", "b")][..],
                &[("404", "a"), ("500", "b")][..],
            ),
            (&[("5xx", "a")], &[("502", "b"), ("4xx", "b")], &[("5xx", "a"), ("4xx", "b")]),
            (&[("502", "a")], &[("5xx", "b")], &[("502", "a"), ("5xx", "b")]),
            (&[], &[("5xx", "b")], &[("5xx", "b")]),
        ] {
            let merged = inherit(pages(own).unwrap(), &pages(outer).unwrap());
            assert_eq!(merged, pages(expected).unwrap());
        }
    }
}
