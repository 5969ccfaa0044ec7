//! Sizes and times. Pure.

use std::time::Duration;

use weft_config::{show_size, show_time};

/// Returns true if a word is in a list of words.
pub(crate) fn lists(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|listed| listed == word)
}

/// Parses a size such as `10m` and returns it as Weft writes it.
pub(crate) fn size(text: &str) -> Option<String> {
    bytes(text).map(show_size)
}

pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (number, factor) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Parses a time such as `1h30m` or `60` (seconds) and returns it as Weft writes it; `None` for 0:
/// no time of Weft may be 0.
pub(crate) fn time(text: &str) -> Option<String> {
    duration(text).filter(|time| !time.is_zero()).map(show_time)
}

pub(crate) fn duration(text: &str) -> Option<Duration> {
    const DAY: u64 = 86_400_000;
    let (mut total, mut rest) = (0_u64, text.trim());
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let unit_len =
            behind.find(|c: char| c.is_ascii_digit() || c == ' ').unwrap_or(behind.len());
        let (unit, next) = behind.split_at(unit_len);
        let millis = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => DAY,
            "w" => 7 * DAY,
            "M" => 30 * DAY,
            "y" => 365 * DAY,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(millis)?)?;
        rest = next.trim_start();
    }
    (!text.is_empty()).then_some(Duration::from_millis(total))
}

/// Returns true if the values of a template are known before a request has a route, as in `[maps]`.
pub(crate) fn is_early(template: &str) -> bool {
    const LATER: [&str; 6] =
        ["{user}", "{request_id}", "{trace_id}", "{span_id}", "{upstream}", "{time}"];
    !LATER.iter().any(|name| template.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_sizes_and_times() {
        for (text, expected) in [
            ("10m", Some("10MiB")),
            ("1024", Some("1KiB")),
            ("2G", Some("2GiB")),
            ("0", Some("0B")),
            ("x", None),
            ("", None),
            ("-1", None),
            ("99999999999g", None),
        ] {
            assert_eq!(size(text).as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("60", Some("60s")),
            ("1h30m", Some("90m")),
            ("1d 12h", Some("36h")),
            ("500ms", Some("500ms")),
            ("1y", Some("365d")),
            ("2w", Some("14d")),
            ("0", None),
            ("s", None),
            ("1x", None),
            ("", None),
        ] {
            assert_eq!(time(text).as_deref(), expected, "{text}");
        }
    }
}
