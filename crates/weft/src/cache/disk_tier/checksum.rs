//! Checksums against damage by disks and crashes.

/// An odd constant: multiplication by it is invertible.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A checksum of 64 bits. Each step is invertible, so that a change within 8 bytes always changes
/// the sum. It detects accidents, not intent.
#[derive(Clone, Debug, Default)]
pub(super) struct Checksum {
    sum: u64,
    length: u64,
    /// Bytes at the end that do not fill a word yet.
    rest: [u8; 8],
    rest_length: usize,
}

impl Checksum {
    /// Adds bytes. Only their sequence matters, not their division into calls.
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.rest_length > 0 {
            let (start, rest) = bytes.split_at(bytes.len().min(8 - self.rest_length));
            self.rest[self.rest_length..][..start.len()].copy_from_slice(start);
            self.rest_length += start.len();
            if self.rest_length < 8 {
                return;
            }
            self.add(u64::from_le_bytes(self.rest));
            bytes = rest;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        self.rest[..rest.len()].copy_from_slice(rest);
        self.rest_length = rest.len();
    }

    pub(super) fn finish(mut self) -> u64 {
        self.rest[self.rest_length..].fill(0);
        self.add(u64::from_le_bytes(self.rest));
        self.add(self.length);
        self.sum ^ (self.sum >> 32)
    }

    fn add(&mut self, word: u64) {
        self.sum = (self.sum.rotate_left(29) ^ word).wrapping_mul(FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(bytes: &[u8]) -> u64 {
        let mut checksum = Checksum::default();
        checksum.update(bytes);
        checksum.finish()
    }

    #[test]
    fn division_into_pieces_makes_no_difference() {
        let bytes: Vec<u8> = (0..100).collect();
        for piece in 1..=bytes.len() {
            let mut pieces = Checksum::default();
            bytes.chunks(piece).for_each(|piece| pieces.update(piece));
            assert_eq!(pieces.finish(), checksum(&bytes), "pieces of {piece}");
        }
    }

    #[test]
    fn each_changed_bit_and_each_cut_changes_the_sum() {
        let bytes: Vec<u8> = (0..40).collect();
        let whole = checksum(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&changed), whole, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_ne!(checksum(&bytes[..length]), whole, "{length} bytes");
        }
        let zeros: Vec<u64> = (0..20).map(|count| checksum(&vec![0; count])).collect();
        assert!(zeros.windows(2).all(|pair| pair[0] != pair[1]), "{zeros:?}");
    }
}
