//! Sizes and durations with units, and ranges of numbers. Pure.

use std::ops::RangeInclusive;
use std::time::Duration;

const SIZES: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

const TIMES: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a size such as `16MiB` or `500 kB`, or a number of bytes.
///
/// # Errors
/// With another text: the expected and the found value, and if possible the remedy.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let invalid = || {
        let hint = binary_size(text).map_or_else(String::new, |size| format!("; write {size}"));
        format!("expected a size such as 16MiB or 500kB, found {text:?}{hint}")
    };
    let (number, unit) = split(text).ok_or_else(invalid)?;
    let factor = match unit {
        "" => 1,
        unit => SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?.1,
    };
    number.checked_mul(factor).ok_or_else(invalid)
}

/// Returns the size that nginx and others write as `16m` or `16M`.
fn binary_size(text: &str) -> Option<String> {
    let (number, unit) = split(text)?;
    let letter = unit.strip_suffix(['b', 'B']).unwrap_or(unit).to_ascii_uppercase();
    matches!(&*letter, "K" | "M" | "G").then(|| format!("{number}{letter}iB"))
}

/// Parses a duration such as `20s`, `500ms`, `5m`, `1h` or `7d`. `never` is [`Duration::MAX`].
///
/// # Errors
/// With another text: the expected and the found value, and if possible the remedy.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    if text == "never" {
        return Ok(Duration::MAX);
    }
    let invalid = |hint: &str| {
        format!("expected a time such as 20s, 500ms, 5m or never, found {text:?}{hint}")
    };
    let (number, unit) = split(text).ok_or_else(|| invalid(""))?;
    if unit.is_empty() {
        return Err(invalid("; the unit is missing"));
    }
    let hint = || match unit {
        "y" => number.checked_mul(365).map_or(String::new(), |days| format!("; write {days}d")),
        "M" => number.checked_mul(30).map_or(String::new(), |days| format!("; write {days}d")),
        _ => String::new(),
    };
    let factor = TIMES.iter().find(|(name, _)| *name == unit);
    let factor = factor.ok_or_else(|| invalid(&hint()))?.1;
    match number.checked_mul(factor) {
        Some(0) => Err(invalid("; for no limit write never")),
        Some(millis) => Ok(Duration::from_millis(millis)),
        None => Err(invalid("")),
    }
}

/// Splits a number from its unit. There may be one space between them.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.strip_prefix(' ').unwrap_or(unit)))
}

/// Formats a size in the largest binary unit that gives a whole number.
pub fn show_size(bytes: u64) -> String {
    let binary = SIZES.iter().filter(|(name, _)| name.ends_with("iB"));
    match binary.into_iter().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor)) {
        Some((name, factor)) => format!("{}{name}", bytes / factor),
        None => format!("{bytes}B"),
    }
}

/// Formats a duration in the largest unit that gives a whole number. Minutes, hours and days are
/// used from two on: `60s`, `60m`, `24h`.
pub fn show_time(time: Duration) -> String {
    if time == Duration::MAX {
        return "never".to_owned();
    }
    let millis = time.as_millis();
    let whole = |factor: u64| millis.is_multiple_of(factor.into());
    // `60s` rather than `1m`, as in the documentation of the settings.
    let fits = |&&(name, factor): &&(&str, u64)| {
        whole(factor) && (matches!(name, "s" | "ms") || millis >= 2 * u128::from(factor))
    };
    match TIMES.iter().find(fits) {
        Some((name, factor)) => format!("{}{name}", millis / u128::from(*factor)),
        None => format!("{millis}ms"),
    }
}

/// Returns the problem of a number outside of `range`.
pub(crate) fn expected_count(range: &RangeInclusive<u64>, found: &str) -> String {
    let (min, max) = (range.start(), range.end());
    match *max >= u64::from(u32::MAX) {
        true => format!("expected a number of at least {min}, found {found:?}"),
        false => format!("expected a number from {min} to {max}, found {found:?}"),
    }
}

/// Returns the size if it is in `range`.
pub(crate) fn size_in(range: &RangeInclusive<u64>, size: u64) -> Result<u64, String> {
    let (min, max) = (range.start(), range.end());
    match range.contains(&size) {
        true => Ok(size),
        false => Err(format!("expected a size from {min} to {max} bytes, found {size}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_shows_sizes() {
        for (text, bytes, shown) in [
            ("0", 0, "0B"),
            ("500", 500, "500B"),
            ("8192", 8_192, "8KiB"),
            ("16MiB", 16 << 20, "16MiB"),
            ("16 MiB", 16 << 20, "16MiB"),
            ("3GiB", 3 << 30, "3GiB"),
            ("2kB", 2_000, "2000B"),
            ("65000B", 65_000, "65000B"),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(show_size(bytes), shown);
            assert_eq!(parse_size(shown), Ok(bytes));
        }
        for (text, hint) in [("10m", "write 10MiB"), ("1G", "write 1GiB"), ("8mb", "write 8MiB")] {
            assert!(parse_size(text).unwrap_err().ends_with(hint), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5MiB", "16M", "1 parsec", "99999999999GiB", "1  KiB"] {
            assert!(parse_size(text).unwrap_err().contains("such as 16MiB"), "{text}");
        }
    }

    #[test]
    fn parses_and_shows_times() {
        for (text, millis, shown) in [
            ("500ms", 500, "500ms"),
            ("20s", 20_000, "20s"),
            ("90 s", 90_000, "90s"),
            ("1m", 60_000, "60s"),
            ("5m", 300_000, "5m"),
            ("1h", 3_600_000, "60m"),
            ("7d", 604_800_000, "7d"),
        ] {
            let time = Duration::from_millis(millis);
            assert_eq!(parse_time(text), Ok(time), "{text}");
            assert_eq!(show_time(time), shown);
            assert_eq!(parse_time(shown), Ok(time));
        }
        assert_eq!(parse_time("never"), Ok(Duration::MAX));
        assert_eq!(show_time(Duration::MAX), "never");
        for (text, hint) in [("1y", "write 365d"), ("2M", "write 60d"), ("1w", "found \"1w\"")] {
            assert!(parse_time(text).unwrap_err().ends_with(hint), "{text}");
        }
        for text in ["", "20", "0s", "s", "1.5s", "-1s", "20 sec", "99999999999999999999s"] {
            assert!(parse_time(text).unwrap_err().contains("such as 20s"), "{text}");
        }
    }
}
