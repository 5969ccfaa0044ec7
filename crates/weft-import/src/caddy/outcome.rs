//! The response to a case of requests, and the rules that apply to it.

use crate::document::{Table, Value};
use crate::validity::HARMLESS;

/// Stands for the current path in texts until the key of the route is known.
pub(super) const PATH: &str = "{\u{1}path}";

/// Stands for the current path with its query.
pub(super) const URI: &str = "{\u{1}uri}";

/// Options that restrict the clients of a route.
pub(super) const ACCESS: [&str; 8] = [
    "allow",
    "deny",
    "basic_auth",
    "forward_auth",
    "forward_auth_headers",
    "realm",
    "satisfy",
    "https_redirect",
];

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Responder {
    /// Caddy responds with 200 and no content.
    #[default]
    None,
    Files(Table),
    /// Scripts beside files.
    Php(Table),
    /// Scripts only.
    Fastcgi(Table),
    Proxy(Table),
    Fixed {
        text: String,
        status: u64,
    },
    Redirect {
        to: String,
        status: u64,
    },
    /// Something that cannot be carried over, and that may protect something.
    Refused,
}

/// The path behind all changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum CurrentPath {
    #[default]
    OfRequest,
    /// A text with placeholders.
    Changed(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    pub(super) root: Option<String>,
    /// Prefix that the path has lost, without a slash at its end.
    pub(super) stripped: String,
    pub(super) path: CurrentPath,
    /// Paths of `try_files`.
    pub(super) candidates: Vec<String>,
    pub(super) options: Table,
    /// Templates of `vars` and `map`.
    pub(super) variables: Vec<(String, String)>,
    /// Scripts that run beside the files of a later directive.
    pub(super) php: Option<Table>,
    /// Expressions for the paths of hidden files.
    pub(super) hidden: Vec<String>,
    pub(super) responder: Responder,
    /// The route for paths without a file, by its name.
    pub(super) without_file: Option<(String, Box<Outcome>)>,
    /// Outcomes of requests that meet conditions, the first one with precedence.
    pub(super) cases: Vec<(Table, Outcome)>,
}

impl Outcome {
    /// Returns true if the response discloses nothing.
    pub(super) fn is_closed(&self) -> bool {
        match &self.responder {
            Responder::None | Responder::Refused => true,
            Responder::Fixed { status, .. } => *status >= 400,
            Responder::Redirect { .. } => false,
            Responder::Files(_) | Responder::Php(_) | Responder::Fastcgi(_) => false,
            Responder::Proxy(_) => false,
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.responder == Responder::Refused
    }

    /// Makes the case respond with 403.
    pub(super) fn refuse(&mut self) {
        self.responder = Responder::Refused;
    }

    /// Returns the options that restrict clients.
    pub(super) fn access(&self) -> Table {
        let mut table = Table::default();
        for key in ACCESS {
            table.set_some(key, self.options.get(key).cloned());
        }
        table
    }

    /// Returns true if another outcome differs in options only whose loss opens nothing.
    pub(super) fn is_like(&self, other: &Outcome) -> bool {
        let without = |outcome: &Outcome| {
            let mut outcome = outcome.clone();
            HARMLESS.iter().for_each(|key| outcome.options.remove(key));
            outcome
        };
        without(self) == without(other)
    }

    /// Returns true if another outcome is the same but for rules about access.
    pub(super) fn differs_in_access(&self, other: &Outcome) -> bool {
        let without = |outcome: &Outcome| {
            let mut outcome = outcome.clone();
            ACCESS.iter().for_each(|key| outcome.options.remove(key));
            outcome
        };
        self != other && without(self) == without(other)
    }

    /// Returns true if this outcome has all rules about access that another one has.
    pub(super) fn has_access_of(&self, other: &Outcome) -> bool {
        let (own, other) = (self.access(), other.access());
        other.keys().all(|key| own.get(key) == other.get(key))
    }

    /// Adds an entry to an option that is a table.
    pub(super) fn set_in(&mut self, option: &str, key: &str, value: impl Into<Value>) {
        let mut table = match self.options.get(option) {
            Some(Value::Table(table)) => table.clone(),
            _ => Table::default(),
        };
        table.set(key, value);
        self.options.set(option, table);
    }

    /// Adds words to an option that is a list.
    pub(super) fn add_to(&mut self, option: &str, words: impl IntoIterator<Item = String>) {
        let mut list = match self.options.get(option) {
            Some(Value::List(list)) => list.clone(),
            _ => Vec::new(),
        };
        for word in words.into_iter().map(Value::from) {
            if !list.contains(&word) {
                list.push(word);
            }
        }
        self.options.set(option, Value::List(list));
    }

    /// Puts the path of the request in place of the current path; `None` if that is another one.
    pub(super) fn with_path_of_request(&self, template: &str) -> Option<String> {
        let has_path = template.contains(PATH) || template.contains(URI);
        let is_same = self.path == CurrentPath::OfRequest && self.stripped.is_empty();
        (!has_path || is_same).then(|| template.replace(URI, "{uri}").replace(PATH, "{path}"))
    }

    /// Returns the text for the current path and query.
    pub(super) fn uri(&self) -> String {
        match &self.path {
            CurrentPath::OfRequest => URI.to_owned(),
            CurrentPath::Changed(path) if path.contains('?') => path.clone(),
            CurrentPath::Changed(path) => format!("{path}?{{query}}"),
        }
    }

    /// Returns the text for the current path.
    pub(super) fn current_path(&self) -> String {
        match &self.path {
            CurrentPath::OfRequest => PATH.to_owned(),
            CurrentPath::Changed(path) => path.split('?').next().unwrap_or_default().to_owned(),
        }
    }
}
