//! `rewrite` without another form: the route of another path responds.

use weft::{Request, Response, StatusCode};
use weft_config::{ConfigResult, Key, SectionKeys};

use super::form::{FormTable, OpenContext, PathKeys, RouteApp, RouteForm};
use super::{ResponseFuture, respond_now};
use crate::route::{REWRITE, RewriteConfig};

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
