//! Keys that change the path of requests, and `rewrite` alone: the route of another path responds.

use weft::{Request, Response, StatusCode};
use weft_config::{ConfigResult, Key, Located, SectionKeys, ValueKind, quoted, quoted_list};

use super::form::{FormTable, OpenContext, PathKeys, RouteApp, RouteForm};
use super::{ResponseFuture, respond_now};

/// Changes to the path of requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct RewriteConfig {
    pub(crate) rewrite: Option<Located<String>>,
    pub(crate) try_files: Vec<Located<String>>,
}

pub(crate) static REWRITE: [Key<RewriteConfig>; 2] = [
    Key {
        name: "rewrite",
        flag: "",
        argument: "",
        help: "path in place of the path behind the prefix, with placeholders; a query in it \
               replaces the query of the request; alone: the route of this path responds",
        kind: ValueKind::Text(|config, text| {
            config.rewrite = Some(text);
            Ok(())
        }),
        show: |config| config.rewrite.as_ref().map_or_else(String::new, |text| quoted(&text.value)),
    },
    Key {
        name: "try_files",
        flag: "",
        argument: "",
        help: "paths, the first existing one is served; at last a path, a route such as @app or \
               a status such as =404; only with `files`",
        kind: ValueKind::Texts(|config, texts| {
            config.try_files = texts;
            Ok(())
        }),
        show: |config| quoted_list(config.try_files.iter().map(|text| &text.value)),
    },
];

impl PathKeys {
    /// Returns the keys.
    pub(crate) fn keys(self) -> &'static [Key<RewriteConfig>] {
        match self {
            PathKeys::None => &[],
            PathKeys::Rewrite => &REWRITE[..1],
            PathKeys::All => &REWRITE,
        }
    }
}

/// A route with `rewrite` only. The path is a value of the route, as with other forms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RewriteForm;

impl RouteForm for RewriteForm {
    type App = NoApp;

    fn name() -> &'static str {
        REWRITE[0].name
    }

    fn keys() -> SectionKeys<RewriteForm> {
        Vec::new()
    }

    fn path_keys() -> PathKeys {
        PathKeys::Rewrite
    }

    /// The table has no target: `rewrite` is a key of the route.
    fn read(table: &mut FormTable<'_, '_>) -> ConfigResult<RewriteForm> {
        table.read_keys(&RewriteForm::keys(), &mut RewriteForm);
        Ok(RewriteForm)
    }

    fn open(&self, _: &OpenContext<'_>) -> Result<NoApp, String> {
        Ok(NoApp)
    }
}

/// Application that gets no requests, as another route has them.
pub(crate) struct NoApp;

impl RouteApp for NoApp {
    fn for_worker(&self, _: bool) -> NoApp {
        NoApp
    }

    fn call(&self, _: Request) -> ResponseFuture {
        respond_now(Response::from(StatusCode::NOT_FOUND))
    }
}
