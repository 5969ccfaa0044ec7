//! Which of several upstreams gets a request. Pure.

use super::settings::Balance;

/// What speaks for and against an upstream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) is_up: bool,
    /// This request was there before, and failed.
    pub(super) was_tried: bool,
    /// It has as many connections as it may: the request would queue.
    pub(super) is_full: bool,
    /// How many requests are there or wait.
    pub(super) load: usize,
}

/// The best of them, if one is up: one that was not tried rather than one with a queue, and
/// even that rather than the same again. The search begins at `turn`, so that those who are
/// equal get their turn.
pub(super) fn choose(
    balance: Balance,
    count: usize,
    turn: usize,
    candidate: impl Fn(usize) -> Candidate,
) -> Option<usize> {
    let mut best: Option<(usize, (bool, bool, usize))> = None;
    for index in (0..count).map(|offset| (turn + offset) % count) {
        let Candidate { is_up, was_tried, is_full, load } = candidate(index);
        if !is_up {
            continue;
        }
        let load = match balance {
            Balance::RoundRobin => 0,
            Balance::LeastConnections => load,
        };
        let against = (was_tried, is_full, load);
        if best.is_none_or(|(_, least)| against < least) {
            best = Some((index, against));
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
    fn choices() {
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
            let chosen = [0, 1, 2].map(|turn| choose(balance, all.len(), turn, |at| all[at]));
            assert_eq!(chosen, expected, "{text} by {balance:?}");
        }
    }
}
