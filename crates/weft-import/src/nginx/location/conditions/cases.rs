//! The cases of a location, in the order in which nginx runs the directives of its server and its
//! own.

use super::program::{Case, CaseEnd, Program};
use crate::nginx::location::Location;
use crate::nginx::tree::Directive;

/// The cases of a location that the program has.
pub(crate) struct Cases<'a> {
    pub(crate) cases: Vec<Case<'a>>,
    pub(crate) known: Vec<usize>,
}

/// Returns the cases of a location, and of its server if they belong to its routes.
pub(crate) fn cases<'a>(location: &Location<'a>, has_server: bool) -> Cases<'a> {
    let of_server = Program::run(location, location.server.children(), None);
    let mut known = Vec::new();
    let mut add_known = |program: &Program<'_, 'a>, block: &[Directive]| {
        known.extend(block.iter().filter(|it| program.has(it)).map(|it| it.id));
    };
    add_known(&of_server, location.server.children());
    let Some(_) = location.directive else {
        let has_response = |case: &&Case<'_>| has_server || !is_response(case);
        let cases = of_server.cases.iter().filter(has_response).cloned().collect();
        return Cases { cases, known };
    };
    let block = location.scope.innermost();
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for case in &of_server.cases {
        if is_response(case) {
            found.extend(has_server.then(|| case.clone()));
            continue;
        }
        let of_location = Program::run(location, block, Some(case));
        add_known(&of_location, block);
        unknown.extend(block.iter().filter(|it| !of_location.has(it)).map(|it| it.id));
        found.extend(of_location.cases);
    }
    if of_server.rests().next().is_none() {
        // No request reaches the location.
        known.extend(block.iter().map(|it| it.id));
    }
    known.retain(|id| !unknown.contains(id));
    Cases { cases: found, known }
}

pub(crate) fn is_response(case: &Case<'_>) -> bool {
    matches!(case.end, CaseEnd::Response(_))
}

/// Returns true if the responses of the server's conditions precede all of its locations, so that
/// they can have a route of their own.
pub(crate) fn precede_locations(of_server: &Location<'_>) -> bool {
    Program::run(of_server, of_server.server.children(), None).rests().count() == 1
}
