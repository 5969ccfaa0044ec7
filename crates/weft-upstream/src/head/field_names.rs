//! Sets of field names, compared without regard to case. Pure.

use weft_proto::names::is_same_name;

/// A set of field names in lower case, each of at most 31 bytes.
pub(crate) struct FieldNames<const N: usize> {
    /// Sorted by length, so that a name is compared only with names of the same length.
    pub(crate) names: [&'static [u8]; N],
    /// Number of names that are shorter than the index.
    shorter: [u8; MAX_NAME_BYTES + 2],
}

const MAX_NAME_BYTES: usize = 31;

impl<const N: usize> FieldNames<N> {
    pub(crate) const fn new(mut names: [&'static [u8]; N]) -> FieldNames<N> {
        let mut shorter = [0; MAX_NAME_BYTES + 2];
        let (mut length, mut sorted) = (0, 0);
        while length <= MAX_NAME_BYTES {
            shorter[length] = sorted as u8;
            let mut at = sorted;
            while at < N {
                if names[at].len() == length {
                    names.swap(sorted, at);
                    sorted += 1;
                }
                at += 1;
            }
            length += 1;
        }
        assert!(sorted == N, "a name is too long");
        shorter[length] = sorted as u8;
        FieldNames { names, shorter }
    }

    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        let Some(&[start, end]) = self.shorter.get(name.len()..).and_then(<[u8]>::first_chunk::<2>)
        else {
            return false;
        };
        let of_length = &self.names[usize::from(start)..usize::from(end)];
        of_length.iter().any(|known| is_same_name(known, name))
    }
}

/// The lengths and the first two letters of field names, by which most other names are told apart
/// at once.
pub(crate) struct NameFilter {
    /// For each length, a set of first letters and a set of second letters. The last entry is for
    /// all longer names.
    letters: [[u32; 2]; MAX_NAME_BYTES + 2],
}

impl NameFilter {
    pub(crate) const fn new() -> NameFilter {
        NameFilter { letters: [[0; 2]; MAX_NAME_BYTES + 2] }
    }

    /// Adds names.
    pub(crate) const fn with_names(mut self, names: &[&[u8]]) -> NameFilter {
        let mut at = 0;
        while at < names.len() {
            self.insert(names[at], names[at].len());
            at += 1;
        }
        self
    }

    /// Adds all names that begin with one of `prefixes`.
    pub(crate) const fn with_prefixes(mut self, prefixes: &[&[u8]]) -> NameFilter {
        let mut at = 0;
        while at < prefixes.len() {
            let mut length = prefixes[at].len();
            while length <= MAX_NAME_BYTES + 1 {
                self.insert(prefixes[at], length);
                length += 1;
            }
            at += 1;
        }
        self
    }

    const fn insert(&mut self, start: &[u8], length: usize) {
        self.letters[length][0] |= letter(start[0]);
        self.letters[length][1] |= letter(start[1]);
    }

    /// Returns false if this name is none of the names.
    #[inline]
    pub(crate) fn may_contain(&self, name: &[u8]) -> bool {
        let Some(&[first, second]) = name.first_chunk() else { return false };
        let [firsts, seconds] = self.letters[name.len().min(MAX_NAME_BYTES + 1)];
        firsts & letter(first) != 0 && seconds & letter(second) != 0
    }
}

/// Returns the bit of a letter, the same for both cases. Other bytes share the bits of letters.
const fn letter(b: u8) -> u32 {
    1 << (b % 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_names_by_their_lengths_and_letters() {
        static FILTER: NameFilter =
            NameFilter::new().with_names(&[b"te", b"x-real-ip"]).with_prefixes(&[b"ssl-"]);
        for (name, expected) in [
            ("te", true),
            ("TE", true),
            ("tex", false),
            ("de", false),
            ("ta", false),
            ("X-Real-IP", true),
            ("xxreal-ip", false),
            ("ssl-", true),
            ("SSL-Client-Verify", true),
            ("ssl-a-name-that-is-longer-than-all-of-them", true),
            ("sec-fetch-site", false),
            ("ssl", false),
            ("t", false),
            ("", false),
        ] {
            assert_eq!(FILTER.may_contain(name.as_bytes()), expected, "{name}");
        }
    }
}
