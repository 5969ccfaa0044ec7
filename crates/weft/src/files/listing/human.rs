//! Human-readable sizes and counts. Pure.

use std::fmt::{self, Display, Formatter, Write};

/// A length in bytes, shown in the largest fitting unit: `812 B`, `1.2 MiB`.
pub(crate) struct Size(pub(crate) u64);

impl Display for Size {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 < 1_024 {
            return write!(f, "{} B", self.0);
        }
        // Rounds before choosing the unit, so that 1024.0 of a unit is never shown.
        let half = |power: u32| 1 << (10 * power - 1);
        let tenths = |power: u32| (u128::from(self.0) * 10 + half(power)) >> (10 * power);
        let power = (1..6).find(|&power| tenths(power) < 10_240).unwrap_or(6);
        let (tenths, unit) = (tenths(power), b"KMGTPE"[power as usize - 1]);
        write!(f, "{}.{} {}iB", tenths / 10, tenths % 10, char::from(unit))
    }
}

/// A number with a comma as thousands separator.
pub(crate) struct Grouped(pub(crate) u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_char(',')?;
            }
            f.write_char(digit)?;
        }
        Ok(())
    }
}

/// A number with its noun: `1 file`, `1,200 files`.
pub(crate) struct Count(pub(crate) u64, pub(crate) &'static str);

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Count(number, noun) = *self;
        write!(f, "{} {noun}{}", Grouped(number), if number == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_sizes_in_binary_units() {
        const MIB: u64 = 1 << 20;
        for (length, expected) in [
            (0, "0 B"),
            (1, "1 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_075, "1.0 KiB"),
            (1_076, "1.1 KiB"),
            (MIB - 52, "1023.9 KiB"),
            (MIB - 51, "1.0 MiB"),
            (MIB, "1.0 MiB"),
            (1_234_567, "1.2 MiB"),
            ((1 << 60) - 1, "1.0 EiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Size(length).to_string(), expected, "{length}");
        }
    }

    #[test]
    fn shows_counts_with_separators_and_plural() {
        for (number, expected) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1_000, "1,000 bytes"),
            (1_234_567, "1,234,567 bytes"),
            (u64::MAX, "18,446,744,073,709,551,615 bytes"),
        ] {
            assert_eq!(Count(number, "byte").to_string(), expected);
        }
    }
}
