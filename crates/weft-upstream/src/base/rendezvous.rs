//! Rendezvous hashing: each owner has a score for a key, and the key belongs to the owner with the
//! highest score. If an owner leaves or its weight changes, only keys from and to this owner move.
//! Pure.

/// Returns the score of an owner for a key, both as hashes. The probability that it is the highest
/// score is in proportion to the weight. With the weight 0, it is never the only highest score.
pub fn score(key: u64, owner: u64, weight: u32) -> f64 {
    // 53 bits, the precision of the type; in (0, 1).
    let fraction = ((mix(key ^ owner) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -f64::from(weight) / fraction.ln()
}

/// Hashes a text: FNV-1a, with mixed bits. The same on all platforms and in all versions.
pub fn hash(text: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    mix(text.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Mixes the bits of a number (the finalizer of splitmix64).
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
