//! Pages for errors.

use std::path::PathBuf;

use weft::StatusCode;
use weft_config::{ConfigResult, Key, Pair, ValueKind, quoted_table};

use super::super::statuses::Statuses;
use super::{RouteOptions, show};

/// The page for errors of some statuses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ErrorPage {
    pub(crate) of: Statuses,
    /// Status of the response with the page; `None`: that of the error.
    pub(crate) status: Option<StatusCode>,
    pub(crate) source: PageSource,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PageSource {
    /// The built-in page, in place of an inherited one.
    Default,
    File(PathBuf),
    /// URL of a redirect.
    Url(String),
}

pub(super) const ERROR_PAGES: Key<RouteOptions> = Key {
    name: "error_pages",
    flag: "error-page",
    argument: "STATUS=FILE",
    help: "pages for errors by status: `{ \"404\" = \"404.html\", \"500 503\" = FILE, \"5xx\" = FILE, \
           \"410 =404\" = FILE }` (with another status), a URL (302), or default for the \
           built-in page; inherited status by status",
    kind: ValueKind::Pairs(set_error_pages),
    show: |options| {
        let pair = |page: &ErrorPage| {
            let status = page.status.map(|status| format!(" ={}", status.as_str()));
            (format!("{}{}", page.of, status.unwrap_or_default()), page.source.to_text())
        };
        quoted_table(options.error_pages.iter().map(pair))
    },
};

pub(super) const INTERCEPT_ERRORS: Key<RouteOptions> = Key {
    name: "intercept_errors",
    flag: "",
    argument: "",
    help: "use `error_pages` also in place of error responses of upstreams and scripts (false)",
    kind: ValueKind::Bool(|options, switch| options.intercept_errors = Some(switch)),
    show: |options| show(options.intercept_errors.as_ref()),
};

/// The word for the built-in page. A file of this name is written `./default`.
const DEFAULT: &str = "default";

impl PageSource {
    fn new(value: &str, base: &std::path::Path) -> PageSource {
        match value {
            DEFAULT => PageSource::Default,
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
        }
    }
}

fn set_error_pages(options: &mut RouteOptions, pairs: Vec<Pair>) -> ConfigResult {
    let mut pages: Vec<ErrorPage> = Vec::new();
    for Pair { name, value, base } in pairs {
        let (statuses, status) = split_status(&name.value).map_err(|text| name.problem(text))?;
        let source = PageSource::new(&value.value, &base);
        if let PageSource::Url(url) = &source
            && !url.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(value.problem(format!("{url:?} has a byte that must be percent-encoded")));
        }
        for of in statuses {
            if pages.iter().any(|page| page.of == of) {
                return Err(name.problem(format!("the status {of} has two pages")));
            }
            pages.push(ErrorPage { of, status, source: source.clone() });
        }
    }
    options.error_pages = pages;
    Ok(())
}

/// Splits `404 410 =200` into the statuses of errors and the changed one.
fn split_status(text: &str) -> Result<(Vec<Statuses>, Option<StatusCode>), String> {
    let (list, changed) = match text.split_once('=') {
        None => (text, None),
        Some((list, changed)) => {
            let status = changed.trim().parse().ok().filter(|status: &StatusCode| {
                matches!(status.as_u16(), 200..=599) && !matches!(status.as_u16(), 204 | 205 | 304)
            });
            let invalid = || format!("expected a status with a page behind `=`, found {changed:?}");
            (list, Some(status.ok_or_else(invalid)?))
        }
    };
    let statuses = Statuses::parse_list(list)?;
    match statuses.iter().find(|of| !of.are_errors()) {
        Some(of) => Err(format!("{of} is no error; pages are for 400 to 599")),
        None => Ok((statuses, changed)),
    }
}

/// Adds the pages of `outer` for statuses without a page of their own.
pub(super) fn inherit(mut own: Vec<ErrorPage>, outer: Vec<ErrorPage>) -> Vec<ErrorPage> {
    let inherited: Vec<_> = outer
        .into_iter()
        .filter(|page| !own.iter().any(|known| known.of.covers(page.of)))
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
        let mut options = RouteOptions::default();
        set_error_pages(&mut options, pairs.iter().map(pair).collect())
            .map_err(|problem| problem.message)?;
        Ok(options.error_pages)
    }

    fn shown(error_pages: Vec<ErrorPage>) -> String {
        (ERROR_PAGES.show)(&RouteOptions { error_pages, ..RouteOptions::default() })
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
            ("404 =", "e", Err("expected a status with a page behind `=`, found \"\"")),
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
            let merged = inherit(pages(own).unwrap(), pages(outer).unwrap());
            assert_eq!(merged, pages(expected).unwrap());
        }
    }
}
