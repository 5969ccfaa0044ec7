//! `handle_errors`: pages of errors.

use std::path::Path;

use super::chain::Context;
use super::decision::outcome;
use super::matcher::Case;
use super::outcome::{CurrentPath, Outcome, Responder};
use super::region::{Region, Tail};
use super::route::{Form, route};
use super::tree::Directive;
use crate::document::{Host, Route, Table};

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
        let found = pages_by_status(context, handler, root, index);
        let is_equal = found.windows(2).all(|pair| pair[0].1 == pair[1].1);
        if found.len() == STATUSES.len() && is_equal {
            pages.set(statuses, &*found[0].1);
        } else {
            join(&found, &handler.args, &mut pages);
        }
        for (.., route) in found {
            let route = route.filter(|new| host.routes.iter().all(|it| it.pattern != new.pattern));
            host.routes.extend(route.map(|it| Route { has_options_of_host: true, ..it }));
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

/// Sets the pages with the statuses that have the same one, if the handler is for them.
fn join(found: &[Page], permitted: &[String], pages: &mut Table) {
    let is_permitted = |status: &u16| {
        let text = status.to_string();
        let class = format!("{}xx", &text[..1]);
        permitted.is_empty() || permitted.iter().any(|it| *it == text || *it == class)
    };
    let mut joined = Vec::<(Vec<String>, &str)>::new();
    for (status, target, _) in found.iter().filter(|(status, ..)| is_permitted(status)) {
        match joined.iter_mut().find(|(_, known)| known == target) {
            Some((statuses, _)) => statuses.push(status.to_string()),
            None => joined.push((vec![status.to_string()], target)),
        }
    }
    joined.into_iter().for_each(|(statuses, target)| pages.set(statuses.join(" "), target));
}

/// A status, its file or the name of its route, and that route.
type Page = (u16, String, Option<Route>);

/// Returns the pages of a handler. Of a status without one, errors have the page of Weft.
fn pages_by_status<'a>(
    context: &'a Context<'a>,
    handler: &'a Directive,
    root: Option<String>,
    index: usize,
) -> Vec<Page> {
    let region = Region::Below(String::new(), Tail::Any);
    let (mut pages, mut known) = (Vec::<Page>::new(), Vec::<Outcome>::new());
    let mut is_lost = false;
    for status in STATUSES {
        let target = context.target;
        let case = Case { region: &region, method: None, host: "", status: Some(status), target };
        let mut outcome = outcome(context, case, handler.children());
        if !std::mem::take(&mut outcome.cases).is_empty() {
            // A page has no conditions.
            outcome.refuse();
        }
        if has_no_root(handler) && root.is_some() {
            outcome.root.clone_from(&root);
        }
        match (&outcome.responder, file(&outcome)) {
            (Responder::Refused, _) => is_lost = true,
            // The requested file is no page of an error.
            (Responder::Files(_), None) if outcome.path == CurrentPath::OfRequest => {}
            (Responder::None, _) => {}
            (_, Some(file)) => pages.push((status, file, None)),
            _ => {
                let number = known.iter().position(|it| *it == outcome).unwrap_or_else(|| {
                    known.push(outcome.clone());
                    known.len() - 1
                });
                let name = match (index, number) {
                    (0, 0) => "@errors".to_owned(),
                    _ => format!("@errors-{index}-{number}"),
                };
                let page = route(case, &outcome, Form::Whole, name.clone());
                pages.extend(page.map(|page| (status, name, Some(page))));
            }
        }
    }
    if is_lost {
        context.notes.lost(handler, "errors have the pages of Weft");
    }
    pages
}

fn has_no_root(handler: &Directive) -> bool {
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
    let rewrite = handler.child("rewrite").filter(|it| !it.arg(0).starts_with('@'))?;
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
