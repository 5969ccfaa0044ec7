//! Parser for the three forms of an HTTP date (RFC 9110 §5.6.7). Pure.
//!
//! The crate `httpdate` is not used: it resolves two-digit years to 1970 – 2069, not to at most
//! 50 years in the future, and rejects leap seconds, dates before 1970, and a wrong name of the
//! day.

use smallvec::SmallVec;

/// Parses an HTTP-date to seconds since 1970. `now` determines the century of a two-digit year.
///
/// The name of the day has to be valid, but is not checked against the date. A time before 1970
/// becomes the first second of 1970, as [`http_date`](crate::semantics::date::http_date) formats
/// it. Returns `None` if the text is not a date.
///
/// ```
/// use weft_proto::semantics::date::parse_http_date;
///
/// let now = 1_785_542_400; // 1 August 2026
/// assert_eq!(parse_http_date(b"Sun, 06 Nov 1994 08:49:37 GMT", now), Some(784_111_777));
/// assert_eq!(parse_http_date(b"Sunday, 06-Nov-94 08:49:37 GMT", now), Some(784_111_777));
/// assert_eq!(parse_http_date(b"Sun Nov  6 08:49:37 1994", now), Some(784_111_777));
/// assert_eq!(parse_http_date(b"1994-11-06T08:49:37Z", now), None);
/// ```
pub fn parse_http_date(text: &[u8], now: u64) -> Option<u64> {
    // No form has more than six words; a seventh is kept so that the match fails.
    let words: SmallVec<[&[u8]; 7]> = text.split(|&b| b == b' ').take(7).collect();
    match words[..] {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [&[ref name @ .., b','], day, month, year, time, b"GMT"] if is_short_day(name) => {
            Parts { year: parse_number(year, 4)?, month, day: parse_number(day, 2)?, time }
                .seconds()
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        [&[ref name @ .., b','], date, time, b"GMT"] if DAYS.contains(&name) => {
            let &[d1, d2, b'-', ref month @ .., b'-', y1, y2] = date else { return None };
            let (year, day) = (parse_number(&[y1, y2], 2)?, parse_number(&[d1, d2], 2)?);
            resolve_century(year, now, |year| Parts { year, month, day, time }.seconds())
        }
        // Sun Nov  6 08:49:37 1994
        [name, month, b"", day, time, year] if is_short_day(name) => {
            Parts { year: parse_number(year, 4)?, month, day: parse_number(day, 1)?, time }
                .seconds()
        }
        // Sun Nov 16 08:49:37 1994
        [name, month, day, time, year] if is_short_day(name) => {
            Parts { year: parse_number(year, 4)?, month, day: parse_number(day, 2)?, time }
                .seconds()
        }
        _ => None,
    }
}

const DAYS: [&[u8]; 7] =
    [b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday"];

fn is_short_day(name: &[u8]) -> bool {
    DAYS.iter().any(|day| day[..3] == *name)
}

/// Parses a number with exactly this number of digits.
fn parse_number(text: &[u8], digits: usize) -> Option<u64> {
    let is_valid = text.len() == digits && text.iter().all(u8::is_ascii_digit);
    is_valid.then(|| text.iter().fold(0, |number, b| number * 10 + u64::from(b - b'0')))
}

/// Resolves a two-digit year: of the years that end in these digits, selects the last one with a
/// date at most 50 years in the future (RFC 9110 §5.6.7). The 50 years are counted in average
/// years, which is accurate to the day.
fn resolve_century(digits: u64, now: u64, at: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    const YEAR: u64 = 31_556_952;
    let horizon = now + 50 * YEAR;
    let latest = 1970 + horizon / YEAR;
    let year = latest - (latest - digits) % 100;
    [year, year - 100].into_iter().find_map(|year| at(year).filter(|&at| at <= horizon))
}

/// The parts of a date, not validated except for the digits.
struct Parts<'a> {
    year: u64,
    month: &'a [u8],
    day: u64,
    time: &'a [u8],
}

impl Parts<'_> {
    /// Returns seconds since 1970 (0 for earlier dates), or `None` if the date does not exist.
    fn seconds(&self) -> Option<u64> {
        const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        const LENGTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        const DAYS_TO_1970: u64 = 719_528;
        let year = self.year;
        let month = MONTHS.chunks(3).position(|name| name == self.month)?;
        let is_leap =
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        if !(1..=LENGTHS[month] + u64::from(is_leap && month == 1)).contains(&self.day) {
            return None;
        }
        // Leap days in the years from 0 to the one before this.
        let leap_days = year.div_ceil(4) - year.div_ceil(100) + year.div_ceil(400);
        let months = LENGTHS[..month].iter().sum::<u64>() + u64::from(is_leap && month > 1);
        let days = 365 * year + leap_days + months + self.day - 1;
        Some((days * 86_400 + parse_time_of_day(self.time)?).saturating_sub(DAYS_TO_1970 * 86_400))
    }
}

/// Parses a time of day to seconds since midnight. A leap second (`:60`) is treated as the next
/// second.
fn parse_time_of_day(text: &[u8]) -> Option<u64> {
    let &[h1, h2, b':', m1, m2, b':', s1, s2] = text else { return None };
    let part = |a, b, max| parse_number(&[a, b], 2).filter(|&number| number <= max);
    Some(part(h1, h2, 23)? * 3_600 + part(m1, m2, 59)? * 60 + part(s1, s2, 60)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sat, 01 Aug 2026 00:00:00 GMT
    const NOW: u64 = 1_785_542_400;

    #[test]
    fn parses_dates() {
        for (text, seconds) in [
            // The examples of RFC 9110 §5.6.7.
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Sun Nov 06 08:49:37 1994", 784_111_777),
            ("Wed Nov 16 08:49:37 1994", 784_975_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 01 Jan 1970 00:00:01 GMT", 1),
            ("Mon, 28 Feb 2000 23:59:59 GMT", 951_782_399),
            ("Tue, 29 Feb 2000 00:00:00 GMT", 951_782_400),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
            ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
            ("Mon, 01 Mar 2100 00:00:00 GMT", 4_107_542_400),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
            // A leap second is the first second of the next minute.
            ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
            ("Sun, 01 Jan 2017 00:00:00 GMT", 1_483_228_800),
            // The name of the day is not checked against the date.
            ("Mon, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Monday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            // Before 1970.
            ("Wed, 31 Dec 1969 23:59:59 GMT", 0),
            ("Mon, 01 Jan 1900 00:00:00 GMT", 0),
            ("Sat, 01 Jan 0000 00:00:00 GMT", 0),
            // Two-digit years: at most 50 years in the future.
            ("Saturday, 01-Aug-26 00:00:00 GMT", NOW),
            ("Wednesday, 01-Jan-70 00:00:00 GMT", 3_155_760_000),
            ("Friday, 31-Jul-76 00:00:00 GMT", 3_363_379_200),
            ("Monday, 03-Aug-76 00:00:00 GMT", 207_878_400),
            ("Friday, 31-Dec-76 00:00:00 GMT", 220_838_400),
            ("Tuesday, 29-Feb-00 00:00:00 GMT", 951_782_400),
            ("Friday, 31-Dec-99 23:59:59 GMT", 946_684_799),
        ] {
            assert_eq!(parse_http_date(text.as_bytes(), NOW), Some(seconds), "{text}");
        }
    }

    #[test]
    fn rejects_malformed_dates() {
        for text in [
            "",
            " ",
            "0",
            "784111777",
            "1994-11-06T08:49:37Z",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 gmt",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT GMT",
            "Sun,  06 Nov 1994 08:49:37 GMT",
            "Sun,06 Nov 1994 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun,\t06 Nov 1994 08:49:37 GMT",
            // Names.
            "06 Nov 1994 08:49:37 GMT",
            ", 06 Nov 1994 08:49:37 GMT",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06 Nov 1994 08:49:37 GMT",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sun,, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nox 1994 08:49:37 GMT",
            "Sun, 06 November 1994 08:49:37 GMT",
            "Sun, 06 anF 1994 08:49:37 GMT",
            "Sun, 06  1994 08:49:37 GMT",
            // Numbers.
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 006 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 32 Dec 1994 08:49:37 GMT",
            "Sun, 29 Feb 2023 08:49:37 GMT",
            "Sun, 29 Feb 2100 08:49:37 GMT",
            "Sun, 30 Feb 2024 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 19994 08:49:37 GMT",
            "Sun, 06 Nov +994 08:49:37 GMT",
            "Sun, -6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 08:49:37.0 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 08:4x:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37",
            "Sunday, 6-Nov-94 08:49:37 GMT",
            "Sunday, 06 Nov-94 08:49:37 GMT",
            "Sunday, 06--94 08:49:37 GMT",
            "Sunday, 31-Nov-94 08:49:37 GMT",
            "sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  06 08:49:37 1994",
            "Sun Nov   6 08:49:37 1994",
            "Sun, Nov  6 08:49:37 1994",
            "Sun Nov  6 08:49:37 94",
            "Sun Nov  6 08:49:37 1994 GMT",
            "Sun Nov  0 08:49:37 1994",
            "Sunday Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse_http_date(text.as_bytes(), NOW), None, "{text:?}");
        }
        assert_eq!(parse_http_date(b"Sun, 06 Nov 1994 08:49:37 GMT\xff", NOW), None);
    }

    /// Parses the output of `date.rs` for one second in every day of five centuries.
    #[test]
    fn parses_every_formatted_day() {
        use std::time::{Duration, UNIX_EPOCH};
        for days in 0..365 * 500 {
            let seconds = days * 86_400 + days % 86_400;
            let text = crate::semantics::date::http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(parse_http_date(text.as_bytes(), NOW), Some(seconds), "{text}");
        }
    }

    /// 29 February of a year without a leap day resolves to another century, or to no date.
    #[test]
    fn resolves_two_digit_years_relative_to_now() {
        for (now, text, expected) in [
            ("Fri, 01 Jan 1999 00:00:00 GMT", "01-Jan-00", Some("Sat, 01 Jan 2000 00:00:00 GMT")),
            ("Fri, 01 Jan 1999 00:00:00 GMT", "01-Jan-48", Some("Wed, 01 Jan 2048 00:00:00 GMT")),
            ("Fri, 01 Jan 1999 00:00:00 GMT", "01-Jan-50", Some("Sun, 01 Jan 1950 00:00:00 GMT")),
            ("Sat, 01 Jan 2072 00:00:00 GMT", "01-Jan-70", Some("Wed, 01 Jan 2070 00:00:00 GMT")),
            ("Sat, 01 Jan 2072 00:00:00 GMT", "01-Jan-21", Some("Wed, 01 Jan 2121 00:00:00 GMT")),
            ("Sat, 01 Jan 2072 00:00:00 GMT", "01-Jan-23", Some("Sun, 01 Jan 2023 00:00:00 GMT")),
            ("Sat, 01 Jan 2072 00:00:00 GMT", "29-Feb-00", Some("Tue, 29 Feb 2000 00:00:00 GMT")),
            ("Sat, 01 Jan 2072 00:00:00 GMT", "29-Feb-21", None),
        ] {
            let parse = |text: &str, now| parse_http_date(text.as_bytes(), now);
            let now = parse(now, 0).unwrap();
            let expected = expected.map(|text| parse(text, 0).unwrap());
            assert_eq!(parse(&format!("Monday, {text} 00:00:00 GMT"), now), expected, "{text}");
        }
    }
}
