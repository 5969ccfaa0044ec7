//! Selection of the upstream for a request. Pure.

use super::settings::Balance;

/// Properties of an upstream that the selection depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) is_up: bool,
    /// The request was sent to this upstream before, and failed.
    pub(crate) was_tried: bool,
    /// All permitted connections are in use: the request would be queued.
    pub(crate) is_full: bool,
    /// Requests in progress or queued.
    pub(crate) load: usize,
}

/// Returns the index of the best available upstream: preferably one that was not tried yet, then
/// one without a queue, then by `balance`. The search begins at `start`, so that equal candidates
/// take turns.
pub(crate) fn choose(
    balance: Balance,
    count: usize,
    start: usize,
    candidate: impl Fn(usize) -> Candidate,
) -> Option<usize> {
    let mut best: Option<(usize, (bool, bool, usize))> = None;
    for index in (0..count).map(|offset| (start + offset) % count) {
        let Candidate { is_up, was_tried, is_full, load } = candidate(index);
        if !is_up {
            continue;
        }
        let load = match balance {
            Balance::RoundRobin => 0,
            Balance::LeastConnections => load,
        };
        let penalty = (was_tried, is_full, load);
        if best.is_none_or(|(_, lowest)| penalty < lowest) {
            best = Some((index, penalty));
        }
    }
    best.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `-` is down, `!` was tried, `#` is full; the digit is the load.
    fn candidates(text: &str) -> Vec<Candidate> {
        let one = |text: &str| Candidate {
            is_up: !text.contains('-'),
            was_tried: text.contains('!'),
            is_full: text.contains('#'),
            load: text.trim_matches(['-', '!', '#']).parse().unwrap(),
        };
        text.split(' ').map(one).collect()
    }

    #[test]
    fn chooses_best_available_upstream() {
        use Balance::*;
        for (text, balance, expected) in [
            ("0", RoundRobin, [Some(0), Some(0), Some(0)]),
            ("-0", RoundRobin, [None, None, None]),
            ("5 0 9", RoundRobin, [Some(0), Some(1), Some(2)]),
            ("5 -0 9", RoundRobin, [Some(0), Some(2), Some(2)]),
            ("5 #0 9", RoundRobin, [Some(0), Some(2), Some(2)]),
            ("!5 #0 -9", RoundRobin, [Some(1), Some(1), Some(1)]),
            ("!5 #!0 -9", RoundRobin, [Some(0), Some(0), Some(0)]),
            ("5 0 9", LeastConnections, [Some(1), Some(1), Some(1)]),
            ("3 3 3", LeastConnections, [Some(0), Some(1), Some(2)]),
            ("3 !0 4", LeastConnections, [Some(0), Some(0), Some(0)]),
            ("3 -0 4", LeastConnections, [Some(0), Some(0), Some(0)]),
        ] {
            let all = candidates(text);
            let chosen = [0, 1, 2].map(|start| choose(balance, all.len(), start, |at| all[at]));
            assert_eq!(chosen, expected, "{text} by {balance:?}");
        }
    }
}
