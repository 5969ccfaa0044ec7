//! `handle_errors`: pages of errors.

use std::path::Path;

use super::chain::Context;
use super::decision::outcome;
use super::matcher::Case;
use super::outcome::{CurrentPath, Outcome, Responder};
use super::region::{Region, Tail};
use super::route::{Form, route};
use super::tree::Directive;
use crate::document::{Host, Table};

/// Statuses that may have a file of their own.
const STATUSES: [u16; 12] = [400, 401, 403, 404, 405, 410, 413, 429, 500, 502, 503, 504];

/// Adds the pages to the routes of a host.
pub(super) fn add<'a>(context: &'a Context<'a>, block: &'a [Directive], host: &mut Host) {
    let mut pages = Table::default();
    for (index, handler) in block.iter().filter(|it| it.name == "handle_errors").enumerate() {
        let statuses = match handler.args.is_empty() {
            true => "4xx 5xx".to_owned(),
            false => handler.args.join(" "),
        };
        let root = root(context, handler.children()).or_else(|| root(context, block));
        if let Some(files) = files_by_status(handler, root.as_deref()) {
            if files.is_empty() {
                context
                    .notes
                    .lost(handler, "there are no files for statuses; add them to `error_pages`");
            }
            files.iter().for_each(|(status, file)| pages.set(status.to_string(), &**file));
            continue;
        }
        let region = Region::Below(String::new(), Tail::Any);
        let case = Case { region: &region, method: None, host: "", target: context.target };
        let mut outcome = outcome(context, case, handler.children());
        if matches!(outcome.responder, Responder::Files(_)) && outcome.root.is_none()
            || root.is_some() && outcome_has_no_root(handler)
        {
            outcome.root = root;
        }
        let name = if index == 0 { "@errors".to_owned() } else { format!("@errors-{index}") };
        match (&outcome.responder, file(&outcome)) {
            (Responder::None | Responder::Refused, _) => {
                context.notes.lost(handler, "errors have the pages of Weft");
            }
            (_, Some(file)) => pages.set(statuses, file),
            _ => {
                let Some(page) = route(case, &outcome, Form::Whole, name.clone()) else { continue };
                pages.set(statuses, &*name);
                host.routes.push(page);
            }
        }
    }
    if !pages.is_empty() {
        // Routes that only refuse have the pages of their host.
        let has_others = host.routes.iter().any(|route| !route.is_refusal);
        let routes = host.routes.iter_mut().filter(|it| !it.pattern.starts_with('@'));
        routes
            .filter(|route| !has_others || !route.is_refusal)
            .for_each(|route| route.table.set("error_pages", pages.clone()));
    }
}

fn outcome_has_no_root(handler: &Directive) -> bool {
    handler.child("root").is_none()
}

/// Returns the directory of the files of a block.
fn root(context: &Context<'_>, block: &[Directive]) -> Option<String> {
    let path = block.iter().rfind(|it| it.name == "root")?.args.last()?;
    let path = Some(path).filter(|path| !path.contains('{'))?;
    Some(context.base.join(path).components().collect::<std::path::PathBuf>())
        .map(|path| path.to_string_lossy().into_owned())
}

/// Returns the files for statuses, if the path of the page has the status in it.
fn files_by_status(handler: &Directive, root: Option<&str>) -> Option<Vec<(u16, String)>> {
    let rewrite = handler.child("rewrite")?;
    let to = rewrite.args.last()?;
    let name =
        ["{err.status_code}", "{http.error.status_code}"].iter().find(|it| to.contains(**it))?;
    handler.child("file_server")?;
    let file = |status: u16| {
        let path = to.replace(name, &status.to_string());
        format!("{}{path}", root.unwrap_or_default())
    };
    let files = STATUSES.map(|status| (status, file(status))).into_iter();
    Some(files.filter(|(_, file)| Path::new(file).is_file()).collect())
}

/// Returns the file that is the page of all errors.
fn file(outcome: &Outcome) -> Option<String> {
    let (Responder::Files(_), Some(root)) = (&outcome.responder, &outcome.root) else {
        return None;
    };
    match &outcome.path {
        CurrentPath::Changed(path) if !path.contains(['{', '?']) => Some(format!("{root}{path}")),
        _ => None,
    }
}
