//! Matchers: which requests a directive applies to.

pub(super) mod values; // fields and parameters

use self::values::NamedValues;
use super::region::{Cover, Paths, Region};
use super::tree::Directive;
use crate::Target;

/// A condition of a matcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// One of these sets of paths.
    Path(Vec<Paths>),
    Method(Vec<String>),
    Host(Vec<String>),
    /// Networks of the client.
    Networks(Vec<String>),
    /// `http` or `https`.
    Protocol(String),
    /// A file exists. The texts have the form of `try_files`.
    File(Vec<String>),
    /// Values of a field or a parameter.
    Values(NamedValues),
    /// Other values that the client chooses.
    OfClient,
    /// The status of an error, by an operator and its numbers.
    Status(String, Vec<u16>),
    Unknown,
    /// None of these matchers applies.
    Not(Vec<Condition>),
}

/// Result of a matcher for the requests of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Matched {
    Yes,
    No,
    Depends(Dependence),
}

/// A property of requests that no route of Weft distinguishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependence {
    pub(super) kind: Kind,
    pub(super) is_negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Networks(Vec<String>),
    Unencrypted,
    File(Vec<String>),
    /// All of these.
    Values(Vec<NamedValues>),
    OfClient,
    Unknown,
}

/// Requests of a site that are treated in the same way.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) region: &'a Region,
    /// `None`: methods that no matcher names.
    pub(super) method: Option<&'a str>,
    /// Name of the host, as in the section of a host.
    pub(super) host: &'a str,
    /// Status of the error, in `handle_errors`.
    pub(super) status: Option<u16>,
    pub(super) target: &'a dyn Target,
}

/// Networks of `private_ranges`.
pub(super) const PRIVATE_RANGES: [&str; 6] =
    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::1"];

/// Parses the definition of a named matcher, whose conditions must all apply.
pub(super) fn parse_named(definition: &Directive) -> Vec<Condition> {
    let of_line = match definition.args.split_first() {
        Some((kind, args)) => vec![condition(kind, args, definition.children())],
        None => Vec::new(),
    };
    match definition.args.is_empty() {
        true => set(definition.children()),
        false => of_line,
    }
}

/// Returns the conditions of a block. Equal ones are merged, except for `not`.
fn set(block: &[Directive]) -> Vec<Condition> {
    let mut conditions = Vec::<Condition>::new();
    for directive in block {
        let new = condition(&directive.name, &directive.args, directive.children());
        let known = conditions.iter_mut().find_map(|known| match (known, &new) {
            (Condition::Path(known), Condition::Path(new)) => {
                known.extend(new.iter().cloned());
                Some(())
            }
            (Condition::Method(known), Condition::Method(new))
            | (Condition::Host(known), Condition::Host(new))
            | (Condition::Networks(known), Condition::Networks(new)) => {
                known.extend(new.iter().cloned());
                Some(())
            }
            (Condition::Values(known), Condition::Values(new)) => known.merge(new).then_some(()),
            _ => None,
        });
        if known.is_none() {
            conditions.push(new);
        }
    }
    conditions
}

fn condition(kind: &str, args: &[String], block: &[Directive]) -> Condition {
    let upper = || args.iter().map(|arg| arg.to_ascii_uppercase()).collect();
    match kind {
        "path" => Condition::Path(args.iter().map(|arg| Paths::parse(arg)).collect()),
        "path_regexp" => match args.last() {
            Some(regex) => Condition::Path(vec![Paths::Regex(regex.clone())]),
            None => Condition::Unknown,
        },
        "method" => Condition::Method(upper()),
        "host" => Condition::Host(args.iter().map(|arg| arg.to_ascii_lowercase()).collect()),
        // The address in `X-Forwarded-For`, from whomever it comes.
        "remote_ip" if args.iter().any(|arg| arg == "forwarded") => Condition::Unknown,
        "remote_ip" | "client_ip" => {
            Condition::Networks(args.iter().flat_map(|arg| networks(arg)).collect())
        }
        "protocol" => Condition::Protocol(args.first().cloned().unwrap_or_default()),
        "file" => file(args, block),
        "header" => of_values(NamedValues::of_header(args)),
        "header_regexp" => of_values(NamedValues::of_header_regexp(args)),
        "query" => of_values(NamedValues::of_query(args)),
        "vars" | "vars_regexp" => Condition::OfClient,
        "expression" => status(&args.join(" ")).unwrap_or(Condition::Unknown),
        "not" => {
            let inner = match args.split_first() {
                Some((kind, args)) => vec![condition(kind, args, block)],
                None => set(block),
            };
            Condition::Not(inner)
        }
        _ => Condition::Unknown,
    }
}

fn of_values(values: Option<NamedValues>) -> Condition {
    values.map_or(Condition::OfClient, Condition::Values)
}

/// Returns the networks of a word.
pub(super) fn networks(word: &str) -> Vec<String> {
    match word {
        "private_ranges" => PRIVATE_RANGES.map(str::to_owned).into(),
        word => vec![word.to_owned()],
    }
}

/// Parses an expression about the status of an error, such as `{err.status_code} == 404`.
fn status(text: &str) -> Option<Condition> {
    let text = text.trim();
    let rest = ["{err.status_code}", "{http.error.status_code}"]
        .iter()
        .find_map(|name| text.strip_prefix(name))?;
    let (operator, numbers) = rest.trim().split_once(' ')?;
    let numbers = numbers.trim().trim_matches(['[', ']']).split(',');
    let numbers: Option<Vec<u16>> = numbers.map(|it| it.trim().parse().ok()).collect();
    let is_known = matches!(operator, "==" | "!=" | ">=" | ">" | "<" | "<=" | "in");
    numbers.filter(|_| is_known).map(|all| Condition::Status(operator.to_owned(), all))
}

/// Returns true if a status is one of an expression.
fn is_status(operator: &str, numbers: &[u16], status: u16) -> bool {
    let first = numbers.first().copied().unwrap_or_default();
    match operator {
        "==" => status == first,
        "!=" => status != first,
        ">=" => status >= first,
        ">" => status > first,
        "<" => status < first,
        "<=" => status <= first,
        _ => numbers.contains(&status),
    }
}

fn file(args: &[String], block: &[Directive]) -> Condition {
    let mut candidates = args.to_vec();
    for directive in block {
        match &*directive.name {
            "try_files" => candidates.extend(directive.args.iter().cloned()),
            "root" | "try_policy" | "split_path" => return Condition::Unknown,
            _ => {}
        }
    }
    if candidates.is_empty() {
        candidates.push("{path}".to_owned());
    }
    Condition::File(
        candidates.iter().map(|it| it.replace("{http.request.uri.path}", "{path}")).collect(),
    )
}

/// Evaluates conditions that must all apply. `stripped` is the prefix that the path has lost.
pub(super) fn evaluate(conditions: &[Condition], case: Case<'_>, path: &PathInCase<'_>) -> Matched {
    let mut depends = None;
    for condition in conditions {
        match one(condition, case, path) {
            Matched::No => return Matched::No,
            Matched::Yes => {}
            Matched::Depends(new) => {
                let kind = match depends {
                    None => new,
                    Some(Dependence { kind: Kind::Values(mut all), is_negated: false })
                        if !new.is_negated && matches!(new.kind, Kind::Values(_)) =>
                    {
                        if let Kind::Values(more) = new.kind {
                            all.extend(more);
                        }
                        Dependence { kind: Kind::Values(all), is_negated: false }
                    }
                    // Of several properties, some requests have all.
                    Some(Dependence { kind: Kind::OfClient, is_negated: false })
                        if !new.is_negated && new.kind == Kind::OfClient =>
                    {
                        new
                    }
                    Some(_) => Dependence { kind: Kind::Unknown, is_negated: false },
                };
                depends = Some(kind);
            }
        }
    }
    depends.map_or(Matched::Yes, Matched::Depends)
}

/// The path that a matcher sees.
pub(super) enum PathInCase<'a> {
    /// The path of the request, without a prefix that has been removed.
    Stripped(&'a str),
    /// A path that has been set.
    Fixed(&'a str),
    Unknown,
}

fn one(condition: &Condition, case: Case<'_>, path: &PathInCase<'_>) -> Matched {
    let of = |is: bool| if is { Matched::Yes } else { Matched::No };
    let depends = |kind: Kind| Matched::Depends(Dependence { kind, is_negated: false });
    match condition {
        Condition::Path(all) => match path {
            PathInCase::Stripped(stripped) => {
                let covers: Vec<Cover> = all
                    .iter()
                    .map(|paths| case.region.cover(&paths.behind(stripped), case.target))
                    .collect();
                match covers.contains(&Cover::Whole) {
                    true => Matched::Yes,
                    false if covers.contains(&Cover::Part) => depends(Kind::Unknown),
                    false => Matched::No,
                }
            }
            PathInCase::Fixed(path) => of(all.iter().any(|it| it.include(case.target, path))),
            PathInCase::Unknown if all.contains(&Paths::All) => Matched::Yes,
            PathInCase::Unknown => depends(Kind::Unknown),
        },
        Condition::Method(methods) => {
            of(case.method.is_some_and(|own| methods.iter().any(|it| it == own)))
        }
        Condition::Host(names) => of(names.iter().any(|name| is_host(name, case.host))),
        Condition::Networks(networks) => depends(Kind::Networks(networks.clone())),
        Condition::Protocol(protocol) => match &**protocol {
            "http" => depends(Kind::Unencrypted),
            "https" => Matched::Depends(Dependence { kind: Kind::Unencrypted, is_negated: true }),
            "grpc" => depends(Kind::OfClient),
            _ => depends(Kind::Unknown),
        },
        Condition::File(candidates) => depends(Kind::File(candidates.clone())),
        Condition::Values(values) => {
            let is_regex = |regex: &str| case.target.is_route_key(&format!("~ {regex}"));
            match values.is_valid(is_regex) {
                true => depends(Kind::Values(vec![values.clone()])),
                false => depends(Kind::OfClient),
            }
        }
        Condition::OfClient => depends(Kind::OfClient),
        Condition::Status(operator, numbers) => match case.status {
            Some(status) => of(is_status(operator, numbers, status)),
            None => depends(Kind::Unknown),
        },
        Condition::Unknown => depends(Kind::Unknown),
        Condition::Not(inner) => match evaluate(inner, case, path) {
            Matched::Yes => Matched::No,
            Matched::No => Matched::Yes,
            Matched::Depends(Dependence { kind, is_negated }) => {
                Matched::Depends(Dependence { kind, is_negated: !is_negated })
            }
        },
    }
}

/// Returns true if the names of a matcher include a host, which may itself be a pattern.
pub(super) fn is_host(pattern: &str, host: &str) -> bool {
    pattern == host
        || pattern.strip_prefix('*').is_some_and(|domain| {
            host.strip_suffix(domain).is_some_and(|label| !label.contains('.') && label != "*")
        })
}

/// Returns the methods, sets of paths and hosts of conditions.
pub(super) fn collect<'a>(
    conditions: &'a [Condition],
    paths: &mut Vec<&'a Paths>,
    methods: &mut Vec<&'a str>,
    hosts: &mut Vec<&'a [String]>,
) {
    for condition in conditions {
        match condition {
            Condition::Path(all) => paths.extend(all),
            Condition::Method(all) => methods.extend(all.iter().map(|it| &**it)),
            Condition::Host(all) => hosts.push(all),
            Condition::Not(inner) => collect(inner, paths, methods, hosts),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caddy::region::Tail;
    use crate::test_target::TestTarget;

    #[test]
    fn evaluates_what_is_known_of_a_case() {
        let region = Region::Below("/a/".to_owned(), Tail::Any);
        let case = Case {
            region: &region,
            method: Some("POST"),
            host: "x.org",
            status: Some(502),
            target: &TestTarget,
        };
        let path = |patterns: &[&str]| {
            Condition::Path(patterns.iter().map(|it| Paths::parse(it)).collect())
        };
        let depends =
            |kind: Kind, is_negated: bool| Matched::Depends(Dependence { kind, is_negated });
        for (conditions, expected) in [
            (vec![], Matched::Yes),
            (vec![path(&["/b/*", "/a/*"])], Matched::Yes),
            (vec![Condition::Not(vec![path(&["/a/*"])])], Matched::No),
            (vec![Condition::Method(vec!["GET".to_owned()])], Matched::No),
            (vec![Condition::Host(vec!["*.org".to_owned()])], Matched::Yes),
            (vec![status("{err.status_code} >= 500").unwrap()], Matched::Yes),
            (vec![status("{http.error.status_code} in [404, 410]").unwrap()], Matched::No),
            (vec![path(&["/b/*"]), Condition::OfClient], Matched::No),
            (vec![path(&["/a/*"]), Condition::OfClient], depends(Kind::OfClient, false)),
            (vec![Condition::Not(vec![Condition::OfClient])], depends(Kind::OfClient, true)),
            (vec![Condition::Unknown, Condition::OfClient], depends(Kind::Unknown, false)),
        ] {
            assert_eq!(evaluate(&conditions, case, &PathInCase::Stripped("")), expected);
        }
        assert!(is_host("*.a.org", "x.a.org") && !is_host("*.a.org", "x.y.a.org"));
    }
}
