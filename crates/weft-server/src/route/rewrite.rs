//! Changes to the path of a request before its target gets it. Pure.

use weft::{Request, Response, StatusCode};

use super::reading::{InvalidPath, Readings, has_one_reading};
use super::unrouted::Unrouted;
use crate::template::Template;

/// Maximum number of elements of `try_files`. Each element costs a look-up of a file.
const MAX_ELEMENTS: usize = 16;

/// A change of the path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rewrite {
    /// The target gets this path.
    To(PathTemplate),
    /// The route of this path gets the request.
    PassOn(PathTemplate),
    TryFiles(TryFiles),
}

/// A path of a request, with placeholders.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathTemplate(Template);

/// Paths that are looked up one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TryFiles {
    pub(crate) candidates: Vec<Candidate>,
    /// Applies if none of them exists.
    pub(crate) otherwise: Otherwise,
}

/// A path that is served if it exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    pub(super) path: PathTemplate,
    /// Set if the path has a slash at its end, and so names a folder.
    pub(crate) is_folder: bool,
}

/// The last element of `try_files`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Otherwise {
    /// Name of a route.
    Route(String),
    Status(StatusCode),
    /// Path for which the routes are searched again.
    Redirect(PathTemplate),
}

impl PathTemplate {
    pub(crate) fn parse(text: &str) -> Result<PathTemplate, String> {
        let begins_with_path =
            ["/", "{path}", "{rest}", "{uri}"].iter().any(|it| text.starts_with(it));
        if !begins_with_path {
            return Err(format!("expected a path such as /index.html or {{path}}, found {text:?}"));
        }
        if text.contains('#') || !text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') {
            return Err(format!("the path {text:?} has a byte that must be percent-encoded"));
        }
        Template::parse(text)?.forbid_user().map(PathTemplate)
    }

    pub(crate) fn source(&self) -> &str {
        self.0.source()
    }

    pub(crate) fn template(&self) -> &Template {
        &self.0
    }

    /// Returns the end of the path, as far as it has no placeholders.
    pub(super) fn name(&self) -> &str {
        let path = self.source().split('?').next().unwrap_or_default();
        path.rsplit(['/', '}']).next().unwrap_or_default()
    }

    /// Returns path and query. A query in the template replaces the query of the request, also
    /// if it is empty.
    ///
    /// # Errors
    /// With a response if the values are too long, or if they are segments of dots.
    pub(crate) fn expand(&self, request: &Request) -> Result<String, Response> {
        let expanded = self.0.expand_url(request)?;
        let (path, query) = match expanded.split_once('?') {
            Some((path, query)) => (path, Some(query).filter(|query| !query.is_empty())),
            None => (&*expanded, request.query()),
        };
        let mut target = normalize(path)?;
        if let Some(query) = query {
            target.push('?');
            target.push_str(query);
        }
        Ok(target)
    }
}

/// Removes empty segments, which an empty value leaves.
///
/// # Errors
/// With a segment of dots, in any reading. The router has removed them from the path of the
/// request, but the values of a query, of a field or of two groups can be one.
fn normalize(path: &str) -> Result<String, Response> {
    let mut normal = String::with_capacity(path.len() + 1);
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        if matches!(&*weft::path::decode(segment.as_bytes()), b"." | b"..") {
            return Err(Unrouted::InvalidPath(InvalidPath::HiddenParent).response());
        }
        normal.push('/');
        normal.push_str(segment);
    }
    if path.ends_with('/') || normal.is_empty() {
        normal.push('/');
    }
    if !has_one_reading(&normal) {
        Readings::new(&normal).map_err(|invalid| Unrouted::InvalidPath(invalid).response())?;
    }
    Ok(normal)
}

impl TryFiles {
    /// Parses the elements, each with its number in an error.
    pub(crate) fn parse(elements: &[&str]) -> Result<TryFiles, (usize, String)> {
        let Some((last, others)) = elements.split_last() else {
            return Err((0, "expected paths, and at last a path, @route or =status".to_owned()));
        };
        if elements.len() > MAX_ELEMENTS {
            return Err((MAX_ELEMENTS, format!("more than {MAX_ELEMENTS} elements")));
        }
        let candidates = others.iter().enumerate();
        let candidates = candidates
            .map(|(number, text)| Candidate::parse(text).map_err(|message| (number, message)));
        let candidates = candidates.collect::<Result<_, _>>()?;
        let otherwise = Otherwise::parse(last).map_err(|message| (others.len(), message))?;
        Ok(TryFiles { candidates, otherwise })
    }

    /// Elements as they are written in the configuration.
    pub(crate) fn sources(&self) -> impl Iterator<Item = String> {
        let candidates = self.candidates.iter().map(Candidate::source);
        let last = match &self.otherwise {
            Otherwise::Route(name) => format!("@{name}"),
            Otherwise::Status(status) => format!("={}", status.as_u16()),
            Otherwise::Redirect(path) => path.source().to_owned(),
        };
        candidates.chain([last])
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathTemplate> {
        let last = match &self.otherwise {
            Otherwise::Redirect(path) => Some(path),
            Otherwise::Route(_) | Otherwise::Status(_) => None,
        };
        self.candidates.iter().map(|candidate| &candidate.path).chain(last)
    }
}

impl Candidate {
    fn parse(text: &str) -> Result<Candidate, String> {
        if text.starts_with(['@', '=']) {
            return Err(format!("{text:?} can only be the last element"));
        }
        if text.contains('?') {
            return Err(format!("{text:?} has a query, which only the last element may have"));
        }
        let (path, is_folder) = match text.strip_suffix('/') {
            Some("") => ("/", true),
            Some(path) => (path, true),
            None => (text, false),
        };
        Ok(Candidate { path: PathTemplate::parse(path)?, is_folder })
    }

    fn source(&self) -> String {
        match (self.path.source(), self.is_folder) {
            ("/", _) => "/".to_owned(),
            (path, true) => format!("{path}/"),
            (path, false) => path.to_owned(),
        }
    }

    /// Returns path and query of a look-up: for a folder without the slash of the element, so that
    /// the response is the redirect to the folder unless the path has a slash itself. `None` if the
    /// element is a file, and the path is not.
    pub(crate) fn expand(&self, request: &Request) -> Result<Option<String>, Response> {
        let target = self.path.expand(request)?;
        let path = target.split('?').next().unwrap_or_default();
        Ok((self.is_folder || !path.ends_with('/')).then_some(target))
    }
}

impl Otherwise {
    fn parse(text: &str) -> Result<Otherwise, String> {
        match (text.strip_prefix('@'), text.strip_prefix('=')) {
            (Some(name), _) => Ok(Otherwise::Route(name.to_owned())),
            (_, Some(status)) => {
                let status = status.parse().ok().filter(|status| (200..=599).contains(status));
                let status = status.and_then(|status| StatusCode::from_u16(status).ok());
                let invalid = || format!("expected a status such as =404, found {text:?}");
                status.map(Otherwise::Status).ok_or_else(invalid)
            }
            _ => PathTemplate::parse(text).map(Otherwise::Redirect),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::testing::request;

    #[test]
    fn expands_paths() {
        let request =
            request("GET /a%2Fb/c?d=.. HTTP/1.1\r\nHost: a\r\nX-A: //x\r\nX-C: \\..\r\n\r\n");
        for (template, expected) in [
            ("{path}.html", Some("/a%2Fb/c.html?d=..")),
            ("/x{uri}", Some("/x/a%2Fb/c?d=..")),
            ("/x?e={path}", Some("/x?e=/a/b/c")),
            ("/x?", Some("/x")),
            ("/x?{query}", Some("/x?d=..")),
            ("/{header.x-a}/{header.x-b}/y", Some("/x/y?d=..")),
            ("/{header.x-b}", Some("/?d=..")),
            ("/x/{query.d}/y", None),
            ("/x/.{query.e}/y", None),
            ("/x/.{query.d}", Some("/x/...?d=..")),
            ("/x%2F{query.d}", None),
            ("/x{header.x-c}", None),
        ] {
            let path = PathTemplate::parse(template).unwrap();
            assert_eq!(path.expand(&request).ok().as_deref(), expected, "{template}");
        }
        for template in ["", "a", "{host}", "/a#b", "/a b", "/é", "/a\\b", "/{nothing}"] {
            assert!(PathTemplate::parse(template).is_err(), "{template}");
        }
    }

    #[test]
    fn parses_elements() {
        for (elements, expected) in [
            (&["{path}", "{path}.html", "{path}/", "@app"][..], Ok(())),
            (&["/", "=404"], Ok(())),
            (&["/index.html?a={query.b}"], Ok(())),
            (&[], Err((0, "expected paths"))),
            (&["@app", "=404"], Err((0, "can only be the last"))),
            (&["/", "=404", "/"], Err((1, "can only be the last"))),
            (&["/a?b", "/"], Err((0, "has a query"))),
            (&["/", "=99"], Err((1, "expected a status"))),
            (&["/", "a"], Err((1, "expected a path"))),
            (&["/"; MAX_ELEMENTS + 1], Err((MAX_ELEMENTS, "more than 16 elements"))),
        ] {
            match (TryFiles::parse(elements), expected) {
                (Ok(parsed), Ok(())) => {
                    assert_eq!(parsed.sources().collect::<Vec<_>>(), elements);
                }
                (Err((number, message)), Err((expected, text))) => {
                    assert_eq!(number, expected, "{elements:?}");
                    assert!(message.contains(text), "{elements:?}: {message}");
                }
                (found, _) => panic!("{elements:?}: {found:?}"),
            }
        }
    }
}
