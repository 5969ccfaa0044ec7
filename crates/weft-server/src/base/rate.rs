//! Numbers of requests per period.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use weft_config::{parse_time, show_time};

/// Requests per period: `10/s`, `100/m`, `5/10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rate {
    pub(crate) requests: NonZeroU32,
    pub(crate) period: Duration,
}

impl FromStr for Rate {
    type Err = ();

    fn from_str(text: &str) -> Result<Rate, ()> {
        let (requests, period) = text.split_once('/').ok_or(())?;
        let has_number = period.starts_with(|c: char| c.is_ascii_digit());
        let period = if has_number { period.to_owned() } else { format!("1{period}") };
        let period = parse_time(&period).ok().filter(|period| !period.is_zero()).ok_or(())?;
        Ok(Rate { requests: requests.trim().parse().map_err(|_| ())?, period })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.requests, unit(self.period))
    }
}

/// Formats a period as in a rate: `s`, or `10s`.
fn unit(period: Duration) -> String {
    let text = match period.as_millis() {
        60_000 => "m",
        3_600_000 => "h",
        86_400_000 => "d",
        1_000 => "s",
        _ => return show_time(period),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_shows_rates() {
        for (text, expected) in [
            ("10/s", Some((10, 1))),
            ("100/m", Some((100, 60))),
            ("5/10s", Some((5, 10))),
            ("1000/h", Some((1_000, 3_600))),
            ("0/s", None),
            ("10", None),
            ("/s", None),
            ("10/x", None),
            ("10/0s", None),
            ("-1/s", None),
        ] {
            let rate = text.parse::<Rate>().ok();
            let found = rate.map(|rate| (rate.requests.get(), rate.period.as_secs()));
            assert_eq!(found, expected, "{text}");
            if let Some(rate) = rate {
                let shown = rate.to_string();
                assert_eq!(shown.parse(), Ok(rate), "{shown}");
            }
        }
    }
}
