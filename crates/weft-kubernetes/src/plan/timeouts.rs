//! Durations of the Gateway API (GEP-2257).

/// Maximum duration, in milliseconds: a day.
const MAX_MILLISECONDS: u64 = 24 * 3_600_000;

/// Parses a duration such as `1h30m`, `10s` or `500ms`.
///
/// # Errors
/// If the text has another form, or if the duration is longer than a day.
pub(super) fn milliseconds(text: &str) -> Result<u64, String> {
    let invalid = || format!("the duration {text:?} is invalid, or longer than a day");
    let (mut total, mut rest) = (0_u64, text);
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let (number, behind) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let units = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        let unit = units.into_iter().find(|(unit, _)| behind.starts_with(unit));
        let (unit, factor) = unit.ok_or_else(invalid)?;
        total =
            number.checked_mul(factor).and_then(|it| it.checked_add(total)).ok_or_else(invalid)?;
        rest = &behind[unit.len()..];
    }
    if total > MAX_MILLISECONDS { Err(invalid()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations() {
        for (text, expected) in [
            ("10s", Some(10_000)),
            ("500ms", Some(500)),
            ("1h30m", Some(5_400_000)),
            ("0s", Some(0)),
            ("24h", Some(86_400_000)),
            ("24h1ms", None),
            ("", None),
            ("s", None),
            ("10", None),
            ("1d", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(milliseconds(text).ok(), expected, "{text}");
        }
    }
}
