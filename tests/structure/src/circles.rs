//! Circles: files or folders that depend on each other, directly or by way of others.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the sets of nodes that depend on each other, the largest first.
pub fn circles<T: Copy + Ord>(edges: &BTreeSet<(T, T)>) -> Vec<BTreeSet<T>> {
    let mut uses: BTreeMap<T, Vec<T>> = BTreeMap::new();
    edges.iter().for_each(|(user, used)| uses.entry(*user).or_default().push(*used));
    let reachable = |from: T| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            let used = uses.get(&node).into_iter().flatten();
            open.extend(used.filter(|used| reached.insert(**used)));
        }
        reached
    };
    let reached: BTreeMap<T, BTreeSet<T>> = uses.keys().map(|it| (*it, reachable(*it))).collect();
    let circle = |(node, from): (&T, &BTreeSet<T>)| -> BTreeSet<T> {
        let returns = |other: &&T| reached.get(other).is_some_and(|it| it.contains(node));
        from.iter().filter(returns).copied().collect()
    };
    let circles: BTreeSet<_> = reached.iter().map(circle).filter(|it| it.len() > 1).collect();
    let mut circles: Vec<_> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Returns the number of nodes of the longest chain of dependencies. A circle counts as one node.
pub fn floors<T: Copy + Ord>(edges: &BTreeSet<(T, T)>) -> usize {
    let circles = circles(edges);
    let group = |node: T| {
        let circle = circles.iter().find(|circle| circle.contains(&node));
        circle.and_then(|circle| circle.first().copied()).unwrap_or(node)
    };
    let mut edges: Vec<(T, T)> =
        edges.iter().map(|(user, used)| (group(*user), group(*used))).collect();
    edges.retain(|(user, used)| user != used);
    let mut floors = 1;
    // Each round removes the lowest floor: the nodes that use no others.
    while !edges.is_empty() {
        let users: BTreeSet<T> = edges.iter().map(|(user, _)| *user).collect();
        edges.retain(|(_, used)| users.contains(used));
        floors += 1;
    }
    floors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_and_floors_of_a_graph() {
        let edges =
            [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("a", "d"), ("e", "e"), ("e", "a")];
        let edges = BTreeSet::from(edges);
        assert_eq!(circles(&edges), [BTreeSet::from(["b", "c"])]);
        assert_eq!(floors(&edges), 4);
    }
}
