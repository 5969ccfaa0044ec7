//! Dates as text: the formats of RFC 9110 §5.6.7 and RFC 3339.

use std::time::{SystemTime, UNIX_EPOCH};

pub use super::date_parse::parse_http_date;

/// Formats a time as an HTTP date (RFC 9110 §5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// let date = weft_proto::semantics::date::http_date(UNIX_EPOCH + Duration::from_secs(784_111_777));
/// assert_eq!(date, "Sun, 06 Nov 1994 08:49:37 GMT");
/// ```
pub fn http_date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    String::from_utf8(imf_fixdate(seconds).to_vec()).expect("a date is ASCII")
}

/// Formats a time in RFC 3339 format, in UTC and to the second: `1994-11-06T08:49:37Z`.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// let date = weft_proto::semantics::date::rfc3339(UNIX_EPOCH + Duration::from_secs(784_111_777));
/// assert_eq!(date, "1994-11-06T08:49:37Z");
/// ```
pub fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    String::from_utf8(rfc3339_utc(seconds).to_vec()).expect("a date is ASCII")
}

/// Formats a time like [`rfc3339`], with milliseconds: `1994-11-06T08:49:37.250Z`.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// let time = UNIX_EPOCH + Duration::from_millis(784_111_777_250);
/// assert_eq!(weft_proto::semantics::date::rfc3339_millis(time), "1994-11-06T08:49:37.250Z");
/// ```
pub fn rfc3339_millis(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = rfc3339_utc(since.as_secs());
    let seconds = std::str::from_utf8(&seconds[..19]).expect("a date is ASCII");
    format!("{seconds}.{:03}Z", since.subsec_millis())
}

/// The last second of 9999, which is the last year with four digits.
const LAST_SECOND: u64 = 253_402_300_799;

/// Formats seconds since 1970 like [`http_date`], without an allocation. The latest date is the
/// last second of the year 9999.
///
/// ```
/// use weft_proto::semantics::date::imf_fixdate;
///
/// assert_eq!(&imf_fixdate(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
/// ```
pub fn imf_fixdate(seconds: u64) -> [u8; 29] {
    let seconds = seconds.min(LAST_SECOND);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days);
    let mut date = *b"Sun, 06 Nov 1994 08:49:37 GMT";
    let name = |names: &'static [u8], index: u64| &names[index as usize * 3..][..3];
    date[0..3].copy_from_slice(name(b"ThuFriSatSunMonTueWed", days % 7));
    date[5..7].copy_from_slice(&two_digits(day));
    date[8..11].copy_from_slice(name(b"JanFebMarAprMayJunJulAugSepOctNovDec", month - 1));
    date[12..14].copy_from_slice(&two_digits(year / 100));
    date[14..16].copy_from_slice(&two_digits(year % 100));
    date[17..25].copy_from_slice(&time_of_day(second));
    date
}

/// Formats seconds since 1970 like [`rfc3339`], without an allocation. The latest date is the last
/// second of the year 9999.
pub fn rfc3339_utc(seconds: u64) -> [u8; 20] {
    let seconds = seconds.min(LAST_SECOND);
    let (year, month, day) = civil_from_days(seconds / 86_400);
    let mut date = *b"1994-11-06T08:49:37Z";
    date[0..2].copy_from_slice(&two_digits(year / 100));
    date[2..4].copy_from_slice(&two_digits(year % 100));
    date[5..7].copy_from_slice(&two_digits(month));
    date[8..10].copy_from_slice(&two_digits(day));
    date[11..19].copy_from_slice(&time_of_day(seconds % 86_400));
    date
}

fn time_of_day(second: u64) -> [u8; 8] {
    let mut time = *b"08:49:37";
    time[0..2].copy_from_slice(&two_digits(second / 3_600));
    time[3..5].copy_from_slice(&two_digits(second / 60 % 60));
    time[6..8].copy_from_slice(&two_digits(second % 60));
    time
}

fn two_digits(number: u64) -> [u8; 2] {
    [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]
}

/// Converts days since 1970 to year, month and day in the proleptic Gregorian calendar.
///
/// ```
/// use weft_proto::semantics::date::civil_from_days;
///
/// assert_eq!(civil_from_days(784_111_777 / 86_400), (1994, 11, 6));
/// ```
pub fn civil_from_days(days: u64) -> (u64, u64, u64) {
    // Years are counted from March, so that the leap day is the last of its year; 400 such years
    // are always 146,097 days.
    let days = days + 719_468; // from 1 March of the year 0
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a day-by-day walk through the calendar.
    #[test]
    fn converts_every_day_of_five_centuries() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..365 * 500 {
            assert_eq!(civil_from_days(days), (year, month, day));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }

    #[test]
    fn formats_dates() {
        for (seconds, date, short) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT", "1970-01-01T00:00:00Z"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT", "2000-02-28T23:59:59Z"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT", "2000-02-29T00:00:00Z"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT", "2024-02-29T23:59:59Z"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT", "2100-03-01T00:00:00Z"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(std::str::from_utf8(&imf_fixdate(seconds)).unwrap(), date);
            assert_eq!(std::str::from_utf8(&rfc3339_utc(seconds)).unwrap(), short);
        }
    }
}
