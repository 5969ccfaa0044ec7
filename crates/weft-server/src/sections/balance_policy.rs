//! Names of the policies by which an upstream is chosen, of proxy routes and of streams.

use weft_upstream::BalancePolicy;

const POLICIES: [(&str, BalancePolicy); 4] = [
    ("round-robin", BalancePolicy::RoundRobin),
    ("least-connections", BalancePolicy::LeastConnections),
    ("random-two", BalancePolicy::RandomTwo),
    ("hash", BalancePolicy::Hash),
];

/// Names of the policies, in the order of [`POLICIES`].
pub(crate) const POLICY_NAMES: [&str; 4] =
    ["round-robin", "least-connections", "random-two", "hash"];

pub(crate) fn policy(name: &str) -> BalancePolicy {
    let found = POLICIES.iter().find(|(known, _)| *known == name);
    found.map_or_else(BalancePolicy::default, |(_, policy)| *policy)
}

pub(crate) fn policy_name(policy: BalancePolicy) -> &'static str {
    let found = POLICIES.iter().find(|(_, known)| *known == policy);
    found.map_or(POLICY_NAMES[0], |(name, _)| *name)
}
