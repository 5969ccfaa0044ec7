//! Sizes and times as nginx writes them.

/// Converts a size such as `8m` to a size of the configuration.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(['k', 'm', 'g', 'b']);
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no size"))?;
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        _ => return Err(format!("{text:?} is no size")),
    };
    let bytes = number.checked_mul(factor).filter(|bytes| *bytes <= 1 << 50);
    bytes.ok_or_else(|| format!("the size {text:?} is too large"))
}

/// Converts a time such as `60` or `60s` to seconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, factor) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number.filter(|it| (1..=604_800).contains(it)).ok_or_else(|| format!("{text:?} is no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes_and_times() {
        for (text, expected) in
            [("8m", Some(8 << 20)), ("0", Some(0)), ("1K", Some(1_024)), ("x", None), ("9p", None)]
        {
            assert_eq!(size(text).ok(), expected, "{text}");
        }
        for (text, expected) in [("60", Some(60)), ("5s", Some(5)), ("2m", Some(120)), ("0", None)]
        {
            assert_eq!(seconds(text).ok(), expected, "{text}");
        }
    }
}
