//! Shares of requests. Pure.

use std::fmt;

/// A share of the requests, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Share(pub(crate) u32);

impl Share {
    /// All requests.
    pub(crate) const ALL: Share = Share(1_000_000);

    /// Error for a text that is no share.
    pub(crate) const EXPECTED: &str = "expected a percentage such as \"1%\" or \"0.05%\"";

    /// Parses a percentage with up to four decimals.
    pub(crate) fn parse(text: &str) -> Option<Share> {
        let number = text.strip_suffix('%')?.trim_end();
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || whole.len() > 3 || decimals.len() > 4 || !is_number(decimals) {
            return None;
        }
        let millionths: u32 = format!("{whole}{decimals:0<4}").parse().ok()?;
        (is_number(whole) && millionths <= Share::ALL.0).then_some(Share(millionths))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:04}", self.0 % 10_000);
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{}%", self.0 / 10_000),
            decimals => write!(f, "{}.{decimals}%", self.0 / 10_000),
        }
    }
}
