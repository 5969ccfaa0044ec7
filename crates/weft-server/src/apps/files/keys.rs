//! The keys of `[files]`, which are also valid in the table of a route with `files`.

use weft::files::{DirectorySettings, FallbackPaths, HeaderRule, Symlinks};
use weft::header::{HeaderName, HeaderValue};
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted, quoted_list};

use crate::base::engine_fields::engine_sets;
use crate::options::RouteOptions;

/// Values of `[files]` or of a route with `files`. `None`: not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FilesConfig {
    pub(crate) index: Option<Vec<String>>,
    pub(crate) list: Option<bool>,
    pub(crate) list_title: Option<String>,
    pub(crate) fallback: Option<String>,
    pub(crate) fallback_for: Option<FallbackPaths>,
    pub(crate) cache: Option<Vec<Rule>>,
    pub(crate) languages: Option<Vec<String>>,
    pub(crate) compress: Option<bool>,
    /// Files are sent as they are, whatever `compress` is.
    pub(crate) is_uncoded: bool,
    pub(crate) links: Option<Symlinks>,
    pub(crate) headers: Option<Vec<Rule>>,
    /// Patterns of files that are never sent, because they are scripts.
    pub(crate) withheld: Vec<String>,
}

/// A header rule, with its text in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) text: String,
    pub(crate) rule: HeaderRule,
}

pub(crate) static FILES: [Key<FilesConfig>; 10] = [
    Key {
        name: "index",
        flag: "index",
        argument: "NAME",
        help: "index file of a directory; of several the first that exists",
        kind: ValueKind::Texts(|files, names| {
            files.index = Some(values(names));
            Ok(())
        }),
        show: |files| {
            files.index.as_ref().map_or_else(String::new, |names| quoted_list(names.iter()))
        },
    },
    Key {
        name: "list",
        flag: "list",
        argument: "",
        help: "list directories without an index file",
        kind: ValueKind::Bool(|files, switch| files.list = Some(switch)),
        show: |files| files.list.map_or_else(String::new, |list| list.to_string()),
    },
    Key {
        name: "list_title",
        flag: "list-title",
        argument: "TEXT",
        help: "name of the directory in the titles of its listings",
        kind: ValueKind::Text(|files, title| {
            files.list_title = Some(title.value);
            Ok(())
        }),
        show: |files| files.list_title.as_ref().map_or_else(String::new, |title| quoted(title)),
    },
    Key {
        name: "fallback",
        flag: "spa",
        argument: "FILE",
        help: "file to serve for paths that do not exist, for single-page applications",
        kind: ValueKind::Text(|files, path| {
            files.fallback = Some(path.value);
            Ok(())
        }),
        show: |files| files.fallback.as_ref().map_or_else(String::new, |path| quoted(path)),
    },
    Key {
        name: "fallback_for",
        flag: "spa-for",
        argument: "PATHS",
        help: "paths that get the fallback: all (by default), or pages, which excludes the extensions \
               of known types other than HTML",
        kind: ValueKind::Choice(&["all", "pages"], |files, choice| {
            files.fallback_for = Some(match choice {
                "pages" => FallbackPaths::Pages,
                _ => FallbackPaths::All,
            });
        }),
        show: |files| match files.fallback_for {
            None => String::new(),
            Some(FallbackPaths::All) => quoted("all"),
            Some(FallbackPaths::Pages) => quoted("pages"),
        },
    },
    Key {
        name: "cache",
        flag: "cache",
        argument: "RULE",
        help: "value of Cache-Control: a time (90s, 5m, 1h, 7d), immutable, no-cache or any other \
               value; for some files: '*.css=1h', '/assets/**=immutable'; the last rule that \
               matches applies",
        kind: ValueKind::Rules(|files, texts| {
            files.cache = Some(rules(texts, |text| {
                HeaderRule::cache(text).map_err(|error| error.reason().to_owned())
            })?);
            Ok(())
        }),
        show: |files| quoted_rules(files.cache.as_ref()),
    },
    Key {
        name: "languages",
        flag: "language",
        argument: "TAG",
        help: "language of files with a name such as about.html.TAG",
        kind: ValueKind::Texts(|files, tags| {
            files.languages = Some(values(tags));
            Ok(())
        }),
        show: |files| {
            files.languages.as_ref().map_or_else(String::new, |tags| quoted_list(tags.iter()))
        },
    },
    Key {
        name: "compress",
        flag: "compress",
        argument: "",
        help: "compress text files for clients that accept it; precompressed files (.br .zst .gz) \
               are served in either case",
        kind: ValueKind::Bool(|files, switch| files.compress = Some(switch)),
        show: |files| files.compress.map_or_else(String::new, |compress| compress.to_string()),
    },
    Key {
        name: "links",
        flag: "links",
        argument: "WHERE",
        help: "symbolic links to follow: those to targets inside the directory, anywhere, or never",
        kind: ValueKind::Choice(&["inside", "anywhere", "never"], |files, choice| {
            files.links = Some(match choice {
                "anywhere" => Symlinks::Anywhere,
                "never" => Symlinks::Never,
                _ => Symlinks::Inside,
            });
        }),
        show: |files| match files.links {
            None => String::new(),
            Some(Symlinks::Anywhere) => quoted("anywhere"),
            Some(Symlinks::Never) => quoted("never"),
            Some(_) => quoted("inside"),
        },
    },
    Key {
        name: "headers",
        flag: "header",
        argument: "FIELD",
        help: "response header field: 'NAME: VALUE'; for some files: '*.html=NAME: VALUE'",
        kind: ValueKind::Fields(|files, texts| {
            files.headers = Some(rules(texts, field)?);
            Ok(())
        }),
        show: |files| quoted_rules(files.headers.as_ref()),
    },
];

impl FilesConfig {
    /// The defaults of [`DirectorySettings`].
    pub(crate) fn defaults() -> FilesConfig {
        let DirectorySettings {
            index,
            listing,
            listing_title,
            fallback,
            languages,
            compress,
            symlinks,
            ..
        } = DirectorySettings::default();
        FilesConfig {
            index: Some(index),
            list: Some(listing),
            list_title: listing_title,
            fallback,
            // Printed only if it is set: most directories have no fallback.
            fallback_for: None,
            cache: Some(Vec::new()),
            languages: Some(languages),
            compress: Some(compress),
            is_uncoded: false,
            links: Some(symlinks),
            headers: Some(Vec::new()),
            withheld: Vec::new(),
        }
    }

    /// Takes values that are not set from `inherited`. Options of the route that files have
    /// themselves move here.
    pub(super) fn plan(&mut self, options: &mut RouteOptions, inherited: &FilesConfig) {
        self.compress = self.compress.or(options.compress.is_enabled.take());
        let own: Vec<_> = self.headers.iter().flatten().map(|rule| rule.rule.name()).collect();
        options.response_headers.keep_unset(&own);
        *self = std::mem::take(self).or(inherited);
        if options.sub_filter.has_texts() {
            // The substitution reads uncoded files, and its result is compressed.
            options.compress.is_enabled = self.compress.take();
            self.is_uncoded = true;
        }
    }

    /// Takes values that are not set from `defaults`.
    pub(crate) fn or(self, defaults: &FilesConfig) -> FilesConfig {
        let defaults = defaults.clone();
        FilesConfig {
            index: self.index.or(defaults.index),
            list: self.list.or(defaults.list),
            list_title: self.list_title.or(defaults.list_title),
            fallback: self.fallback.or(defaults.fallback),
            fallback_for: self.fallback_for.or(defaults.fallback_for),
            cache: self.cache.or(defaults.cache),
            languages: self.languages.or(defaults.languages),
            compress: self.compress.or(defaults.compress),
            is_uncoded: self.is_uncoded || defaults.is_uncoded,
            links: self.links.or(defaults.links),
            headers: self.headers.or(defaults.headers),
            withheld: self.withheld,
        }
    }
}

/// `NAME: VALUE` or `PATTERN=NAME: VALUE`.
fn field(text: &str) -> Result<HeaderRule, String> {
    let invalid = || format!("expected NAME: VALUE or PATTERN=NAME: VALUE, found {text:?}");
    let (name, value) = text.split_once(':').ok_or_else(invalid)?;
    let (pattern, name) = name.rsplit_once('=').unwrap_or(("*", name));
    let name: HeaderName = name.trim().parse().map_err(|_| invalid())?;
    if engine_sets(&name) {
        return Err(format!("the server sets {name} itself"));
    }
    let value = HeaderValue::from_str(value.trim());
    let value =
        value.map_err(|_| format!("the value of {name} has a byte that no field can have"))?;
    Ok(HeaderRule::new(pattern, name, value))
}

fn rules(
    texts: Vec<Located<String>>,
    parse: impl Fn(&str) -> Result<HeaderRule, String>,
) -> ConfigResult<Vec<Rule>> {
    let rule = |text: Located<String>| match parse(&text.value) {
        Ok(rule) => Ok(Rule { text: text.value, rule }),
        Err(message) => Err(text.problem(message)),
    };
    texts.into_iter().map(rule).collect()
}

fn values(texts: Vec<Located<String>>) -> Vec<String> {
    texts.into_iter().map(|text| text.value).collect()
}

fn quoted_rules(rules: Option<&Vec<Rule>>) -> String {
    rules.map_or_else(String::new, |rules| quoted_list(rules.iter().map(|rule| &rule.text)))
}
