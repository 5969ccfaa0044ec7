use super::*;
use crate::base::rendezvous::hash;
use BalancePolicy::*;

/// `-` is down, `!` was tried, `#` is full; the first digits are the load. `*3` is the weight, and
/// `b` a backup.
fn parse(text: &str) -> (Vec<BalanceCandidate>, Vec<MemberShare>) {
    let one = |(index, text): (usize, &str)| {
        let (load, weight) = text.split_once('*').unwrap_or((text, "1"));
        let candidate = BalanceCandidate {
            is_up: !load.contains('-'),
            was_tried: load.contains('!'),
            is_full: load.contains('#'),
            load: load.trim_matches(['-', '!', '#', 'b']).parse().unwrap(),
            weight: 100 * weight.parse::<u32>().unwrap(),
        };
        let seed = hash(index.to_string().as_bytes());
        let share = MemberShare { is_backup: load.contains('b'), seed };
        (candidate, share)
    };
    text.split(' ').enumerate().map(one).unzip()
}

fn choices(text: &str, balance: BalancePolicy, count: usize) -> String {
    let (candidates, shares) = parse(text);
    let balancer = Balancer::new(balance, shares, 1);
    let chosen = (0..count).map(|_| balancer.choose(None, |index| candidates[index]));
    chosen.map(|chosen| chosen.map_or("-".to_owned(), |index| index.to_string())).collect()
}

#[test]
fn chooses_best_available_upstream() {
    for (text, balance, expected) in [
        ("0", RoundRobin, "000"),
        ("-0", RoundRobin, "---"),
        ("5 0 9", RoundRobin, "0120"),
        ("5 -0 9", RoundRobin, "0202"),
        ("5 #0 9", RoundRobin, "0202"),
        ("!5 #0 -9", RoundRobin, "111"),
        ("!5 #!0 -9", RoundRobin, "000"),
        ("5 0 9", LeastConnections, "111"),
        ("3 3 3", LeastConnections, "012"),
        ("3 !0 4", LeastConnections, "000"),
        ("3 -0 4", LeastConnections, "000"),
        ("5 0 9", Hash, "012"),
        // The example of nginx: the heaviest does not get all its requests in a row.
        ("0*5 0 0", RoundRobin, "0010200"),
        ("0*5 -0 0", RoundRobin, "000200"),
        ("0*2 !0 #0", RoundRobin, "000"),
        ("4*4 2*2 1*2", LeastConnections, "222"),
        ("4*4 2*2 2*2", LeastConnections, "0120"),
        // Backups.
        ("0 b0", RoundRobin, "00"),
        ("-0 b0", RoundRobin, "11"),
        ("!0 b0", RoundRobin, "11"),
        ("#0 b0", RoundRobin, "11"),
        ("#0 #b0", RoundRobin, "00"),
        ("-0 b5 b0", LeastConnections, "22"),
        // Of two, the lighter one is chosen.
        ("5 0", RandomTwo, "1111"),
        ("-5 0 -1", RandomTwo, "11"),
        ("-5 -0", RandomTwo, "--"),
    ] {
        assert_eq!(choices(text, balance, expected.len()), expected, "{text} by {balance:?}");
    }
}

#[test]
fn random_choices_respect_weights() {
    // Of two out of three, the one with the most requests is never chosen.
    let chosen = choices("1 1 9", RandomTwo, 3_000);
    assert!(!chosen.contains('2') && chosen.matches('0').count().abs_diff(1_500) < 150);
    let chosen = choices("0*3 0*1 0*1 0*1", RandomTwo, 6_000);
    // The first of the two wins ties.
    assert!(chosen.matches('0').count().abs_diff(3_000) < 200, "{}", chosen.matches('0').count());
}

/// Owners of 20,000 keys, each of them with the loads in `text`.
fn owners(text: &str) -> Vec<Option<usize>> {
    let (candidates, shares) = parse(text);
    let balancer = Balancer::new(Hash, shares, 1);
    let key = |number: u32| hash(&number.to_be_bytes());
    (0..20_000)
        .map(|number| balancer.choose(Some(key(number)), |index| candidates[index]))
        .collect()
}

fn count(owners: &[Option<usize>], index: usize) -> usize {
    owners.iter().filter(|owner| **owner == Some(index)).count()
}

#[test]
fn only_keys_of_a_lost_upstream_move() {
    let all = owners("0 0 0 0 0 0 0 0 0 0");
    for index in 0..10 {
        let keys = count(&all, index);
        assert!((1_500..=2_500).contains(&keys), "{index} has {keys} keys");
    }
    let without = owners("0 0 0 -0 0 0 0 0 0 0");
    let moved = all.iter().zip(&without).filter(|(before, after)| before != after);
    let moved = moved.inspect(|(before, _)| assert_eq!(**before, Some(3))).count();
    assert_eq!(moved, count(&all, 3));
    assert!(moved <= 20_000 * 12 / 100, "{moved} of 20,000 keys");
    let weighted = owners("0*3 0 0 0");
    assert!(count(&weighted, 0).abs_diff(10_000) < 400, "{}", count(&weighted, 0));
}

#[test]
fn loads_stay_within_a_quarter_of_the_average() {
    // All requests in progress have the same few keys.
    let (_, shares) = parse("0 0 0 0 0 0 0 0 0 0");
    let balancer = Balancer::new(Hash, shares, 1);
    let mut loads = [0; 10];
    for number in 0..2_000_u32 {
        let key = hash(&(number % 3).to_be_bytes());
        let candidate = |index| BalanceCandidate {
            is_up: true,
            was_tried: false,
            is_full: false,
            load: loads[index],
            weight: 100,
        };
        let chosen = balancer.choose(Some(key), candidate).unwrap();
        loads[chosen] += 1;
    }
    assert!(loads.iter().all(|load| *load <= 250), "{loads:?}");
    // Few requests keep to their upstream.
    let owner = owners("0 0 0")[0].unwrap();
    let texts = ["7 0 0", "0 7 0", "0 0 7"];
    assert_eq!(owners(texts[owner])[0], Some(owner));
}

#[test]
fn shares_depend_on_the_percentage_of_the_weights() {
    for balance in [RoundRobin, LeastConnections] {
        let (candidates, shares) = parse("0 0*2 0");
        let balancer = Balancer::new(balance, shares, 1);
        let candidate = |index: usize| BalanceCandidate {
            weight: if index == 1 { candidates[index].weight / 10 } else { 100 },
            ..candidates[index]
        };
        let chosen = (0..220).filter_map(|_| balancer.choose(None, candidate));
        let mut counts = [0; 3];
        chosen.for_each(|index| counts[index] += 1);
        assert_eq!(counts, [100, 20, 100], "{balance:?}");
    }
}
