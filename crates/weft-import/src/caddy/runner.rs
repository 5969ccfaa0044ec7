//! Directives of blocks that are run for the requests of a case.

use super::chain::{Chain, Flow, Scopes, conditions, is_try_files};
use super::handlers;
use super::matcher::{Dependence, Kind, Matched, PathInCase, evaluate};
use super::outcome::{CurrentPath, Outcome};
use super::tree::Directive;

impl<'a> Chain<'a> {
    /// Runs the directives of a block, sorted unless the block is a `route`.
    pub(super) fn block(
        &self,
        block: &'a [Directive],
        is_sorted: bool,
        scopes: &Scopes<'a>,
        outcome: &mut Outcome,
    ) -> Flow {
        let mut scopes = scopes.clone();
        scopes.push(block);
        let items = match is_sorted {
            true => self.context.order.sort(block),
            false => block.iter().filter(|it| !it.name.starts_with('@')).collect(),
        };
        self.items(&items, &scopes, outcome)
    }

    pub(super) fn items(
        &self,
        items: &[&'a Directive],
        scopes: &Scopes<'a>,
        outcome: &mut Outcome,
    ) -> Flow {
        let mut used_groups = Vec::new();
        for directive in items {
            // Of these, the first that matches is run.
            let group = match &*directive.name {
                "handle" | "handle_path" => Some("handle"),
                "rewrite" => Some("rewrite"),
                "root" => Some("root"),
                _ => None,
            };
            if group.is_some_and(|group| used_groups.contains(&group)) {
                continue;
            }
            let (matched, args) = self.matched(directive, scopes, outcome);
            let is_run = match matched {
                Matched::Yes => true,
                Matched::No => false,
                Matched::Depends(dependence) => self.assumption(directive, dependence),
            };
            if is_run {
                used_groups.extend(group);
                if handlers::run(self, directive, args, scopes, outcome) == Flow::Done {
                    return Flow::Done;
                }
            }
        }
        Flow::Next
    }

    fn assumption(&self, directive: &'a Directive, dependence: Dependence) -> bool {
        let known = self.assumed.get(&directive.id).copied();
        if known.is_none() && self.open.borrow().is_none() {
            self.open.replace(Some((directive, dependence)));
        }
        known.unwrap_or(false)
    }

    /// Evaluates the matcher of a directive. Returns the other arguments, too.
    fn matched(
        &self,
        directive: &'a Directive,
        scopes: &Scopes<'a>,
        outcome: &Outcome,
    ) -> (Matched, &'a [String]) {
        let (conditions, args) = conditions(directive, scopes);
        let Some(conditions) = conditions else {
            self.lost(directive, "there is no matcher of this name");
            let kind = Kind::Unknown;
            return (Matched::Depends(Dependence { kind, is_negated: false }), args);
        };
        // `try_files` has changed the path of a missing file before them.
        let is_behind_try_files = !outcome.candidates.is_empty()
            && ["handle", "handle_path", "route", "reverse_proxy", "php_fastcgi"]
                .contains(&&*directive.name);
        let path = match &outcome.path {
            _ if is_behind_try_files => PathInCase::Unknown,
            CurrentPath::OfRequest => PathInCase::Stripped(&outcome.stripped),
            CurrentPath::Changed(path) if path.contains('{') => PathInCase::Unknown,
            CurrentPath::Changed(path) => {
                PathInCase::Fixed(path.split('?').next().unwrap_or_default())
            }
        };
        match evaluate(&conditions, self.case, &path) {
            // `try_files`, written as a matcher and a rewrite.
            Matched::Depends(Dependence { kind: Kind::File(_), is_negated: false })
                if is_try_files(directive, args) =>
            {
                (Matched::Yes, args)
            }
            matched => (matched, args),
        }
    }
}
