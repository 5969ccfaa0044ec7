//! Maps whose input or values have other maps: circles are errors, and the length of chains is
//! bounded.

use weft_config::{Problem, suggest};

use super::MapConfig;

/// Maximum number of maps in a chain. Each map has the next map in its input or in a value.
const MAX_DEPTH: usize = 4;

/// Reports unknown maps, circles, and chains that are too long. `names` are the maps that each map
/// uses.
pub(super) fn check_order(
    settings: &[MapConfig],
    names: &[Vec<String>],
    problems: &mut Vec<Problem>,
) {
    let number = |name: &str| settings.iter().position(|map| map.name.value == name);
    let mut used = Vec::new();
    for (names, MapConfig { name, .. }) in names.iter().zip(settings) {
        let mut of_map: Vec<usize> = Vec::new();
        for other in names {
            match number(other) {
                Some(other) if of_map.contains(&other) => {}
                Some(other) => of_map.push(other),
                None => {
                    let known = settings.iter().map(|map| &*map.name.value);
                    problems.push(name.problem(unknown_map(other, known)));
                }
            }
        }
        used.push(of_map);
    }
    // The length of the longest chain from each map, up to a length that is too long. Each round
    // finds chains that are longer by one map.
    let mut lengths = vec![1; settings.len()];
    for _ in 0..MAX_DEPTH {
        let longest = |others: &Vec<usize>| others.iter().map(|other| lengths[*other]).max();
        lengths = used.iter().map(|others| 1 + longest(others).unwrap_or(0)).collect();
    }
    for (length, MapConfig { name, .. }) in lengths.into_iter().zip(settings) {
        if length > MAX_DEPTH {
            problems.push(name.problem(format!(
                "the map `{}` uses other maps in a circle, or in a chain of more than {MAX_DEPTH}",
                name.value
            )));
        }
    }
}

/// Describes an unknown map.
pub(crate) fn unknown_map<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match suggest(name, known) {
        Some(suggestion) => {
            format!("unknown map {{map.{name}}}; did you mean {{map.{suggestion}}}?")
        }
        None => format!("unknown map {{map.{name}}}; it is a section [maps.{name}]"),
    }
}
