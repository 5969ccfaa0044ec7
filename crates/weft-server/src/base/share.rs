//! Shares of requests, and groups of requests that have them. Pure.

use std::fmt;

use weft_upstream::rendezvous::{hash, score};

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

/// Groups that divide requests by a key, so that requests with the same key stay in their group.
/// The choice is the same in all workers and servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShareGroups(Vec<Group>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    name: String,
    share: Share,
    /// Hash of the name.
    owner: u64,
}

impl ShareGroups {
    /// Creates groups; the rest of the requests is in none.
    ///
    /// # Errors
    /// If the shares are more than all requests.
    pub(crate) fn new(
        shares: impl Iterator<Item = (String, Share)>,
    ) -> Result<ShareGroups, String> {
        let group = |(name, share): (String, Share)| {
            let owner = hash(name.as_bytes());
            Group { name, share, owner }
        };
        let groups = ShareGroups(shares.map(group).collect());
        match groups.total() <= u64::from(Share::ALL.0) {
            true => Ok(groups),
            false => Err("the shares of `split` are more than 100%".to_owned()),
        }
    }

    /// Names of the groups with their shares.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&str, Share)> {
        self.0.iter().map(|group| (&*group.name, group.share))
    }

    /// Returns the name of the group that has a key; `None`: the rest.
    pub(crate) fn group_of(&self, key: &str) -> Option<&str> {
        let key = hash(key.as_bytes());
        let rest = u64::from(Share::ALL.0).saturating_sub(self.total()) as u32;
        let stays = (None, score(key, hash(b""), rest));
        let groups =
            self.0.iter().map(|group| (Some(&*group.name), score(key, group.owner, group.share.0)));
        groups.fold(stays, |best, other| if other.1 > best.1 { other } else { best }).0
    }

    /// Sum of the shares.
    fn total(&self) -> u64 {
        self.0.iter().map(|group| u64::from(group.share.0)).sum()
    }
}
