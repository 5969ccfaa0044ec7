//! Reproducible random numbers.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the value of an environment variable that is a number.
pub fn environment_number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// A generator of random numbers (SplitMix64) with a printed seed.
pub struct Random(u64);

impl Random {
    /// Creates a generator with the seed of the environment variable `WEFT_TEST_SEED`, or else the
    /// time.
    pub fn from_environment() -> Random {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
        Random::with_default_seed(since.subsec_nanos().into())
    }

    /// Creates a generator with the seed of the environment variable `WEFT_TEST_SEED`, or else
    /// this one, and prints the seed. The test harness shows it if the test fails.
    pub fn with_default_seed(seed: u64) -> Random {
        let seed = environment_number("WEFT_TEST_SEED").unwrap_or(seed);
        println!("WEFT_TEST_SEED={seed}");
        Random(seed)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    pub fn choose<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
