//! A set of bits that proves the absence of a name in a list of fields. Pure.

/// The lengths and initials of all names of a list, as a set of 64 bits. It may have the lengths
/// and initials of removed fields.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameSketch(u64);

impl NameSketch {
    #[inline]
    pub(crate) fn insert(&mut self, name: &[u8]) {
        self.0 |= NameSketch::bit(name);
    }

    /// Returns true if a name may be equal to this one without regard to case.
    #[inline]
    pub(crate) fn may_contain(self, name: &[u8]) -> bool {
        self.0 & NameSketch::bit(name) != 0
    }

    /// The two cases of a letter differ by 32, which an even factor makes a multiple of 64. Of
    /// these factors, 38 distinguishes the names that are looked up from the usual names.
    #[inline]
    fn bit(name: &[u8]) -> u64 {
        match name {
            [initial, ..] => 1 << ((name.len() + 38 * usize::from(*initial)) % 64),
            [] => 0,
        }
    }
}
