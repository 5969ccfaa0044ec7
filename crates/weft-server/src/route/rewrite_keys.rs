//! The keys `rewrite` and `try_files`, which change the path of requests.

use std::path::Path;

use weft_config::{ConfigLocation, ConfigResult, Key, Located, ValueKind, quoted, quoted_list};

use super::rewrite::{PathTemplate, Rewrite, TryFiles};
use crate::base::script_files::SentFile;
use crate::template::GroupPatterns;

/// Changes to the path of requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct RewriteConfig {
    pub(crate) rewrite: Option<Located<String>>,
    pub(crate) try_files: Vec<Located<String>>,
}

pub(crate) static REWRITE: [Key<RewriteConfig>; 2] = [
    Key {
        name: "rewrite",
        help: "path in place of the path behind the prefix, with placeholders; a query in it \
               replaces the query of the request; alone: the route of this path responds",
        kind: ValueKind::Text(|config, text| {
            config.rewrite = Some(text);
            Ok(())
        }),
        show: |config| config.rewrite.as_ref().map_or_else(String::new, |text| quoted(&text.value)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "try_files",
        help: "paths, the first existing one is served; at last a path, a route such as @app or \
               a status such as =404; only with `files`",
        kind: ValueKind::Texts(|config, texts| {
            config.try_files = texts;
            Ok(())
        }),
        show: |config| quoted_list(config.try_files.iter().map(|text| &text.value)),
        ..Key::FILE_ONLY
    },
];

impl Rewrite {
    /// Validates the keys that change the path. `pass_on`: the route has no other form, so that
    /// another route responds. `try_files_conflict` is the reason why the form has no files to look
    /// up.
    pub(crate) fn plan(
        config: RewriteConfig,
        pass_on: bool,
        try_files_conflict: Option<&'static str>,
        patterns: GroupPatterns<'_>,
    ) -> ConfigResult<Option<Rewrite>> {
        let RewriteConfig { rewrite, try_files } = config;
        let Some(first) = try_files.first() else {
            let parse = |written: Located<String>| {
                let path = PathTemplate::parse(&written.value);
                let path = path.and_then(|path| patterns.check(path.template()).map(|()| path));
                let rewrite = if pass_on { Rewrite::PassOn } else { Rewrite::To };
                path.map(rewrite).map_err(|message| written.problem(message))
            };
            return rewrite.map(parse).transpose();
        };
        if let Some(rewrite) = rewrite {
            return Err(rewrite.problem("a route has `rewrite` or `try_files`, not both"));
        }
        if let Some(message) = try_files_conflict {
            return Err(first.problem(message));
        }
        let elements: Vec<&str> = try_files.iter().map(|element| &*element.value).collect();
        let files = TryFiles::parse(&elements)
            .map_err(|(number, message)| try_files[number].problem(message))?;
        for path in files.paths() {
            patterns.check(path.template()).map_err(|message| first.problem(message))?;
        }
        Ok(Some(Rewrite::TryFiles(files)))
    }

    /// Files that a route with `files` sends as they are.
    pub(crate) fn sent_files(&self) -> Vec<SentFile<'_>> {
        let [rewrite, try_files] = &REWRITE;
        let (key, paths) = match self {
            Rewrite::To(path) => (rewrite.name, vec![path]),
            Rewrite::PassOn(_) => return Vec::new(),
            Rewrite::TryFiles(files) => {
                (try_files.name, files.candidates.iter().map(|it| &it.path).collect())
            }
        };
        let remedy =
            "`rewrite` alone, and the last path of `try_files`, lead to a route that runs it";
        let file = |path| SentFile { key, path: Path::new(PathTemplate::name(path)), remedy };
        paths.into_iter().map(file).collect()
    }

    /// Returns the values of the keys.
    pub(crate) fn config(&self) -> RewriteConfig {
        let at =
            |value: &str| Located { location: ConfigLocation::Unknown, value: value.to_owned() };
        match self {
            Rewrite::To(path) | Rewrite::PassOn(path) => {
                RewriteConfig { rewrite: Some(at(path.source())), try_files: Vec::new() }
            }
            Rewrite::TryFiles(files) => RewriteConfig {
                rewrite: None,
                try_files: files.sources().map(|it| at(&it)).collect(),
            },
        }
    }
}
