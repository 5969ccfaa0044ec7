//! Shares of the requests of a route that other routes of the host get. Pure.
//!
//! The choice depends on a key of the request and on the shares, so that a client stays in its group.
//! It is the same in all workers and servers.

use weft::Request;
use weft_upstream::rendezvous::{hash, score};

use super::share::Share;
use crate::template::Template;

/// The shares of a route, and the key by which requests belong to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Split {
    key: Template,
    groups: Vec<Group>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    /// Name of the route, without its `@`.
    route: String,
    share: Share,
    /// Hash of the name.
    owner: u64,
}

impl Split {
    /// Creates the division of requests by `key` between the named routes; the rest stays.
    ///
    /// # Errors
    /// If the shares are more than all requests.
    pub(crate) fn new(
        key: Template,
        shares: impl Iterator<Item = (String, Share)>,
    ) -> Result<Split, String> {
        let group = |(route, share): (String, Share)| {
            let owner = hash(route.as_bytes());
            Group { route, share, owner }
        };
        let split = Split { key, groups: shares.map(group).collect() };
        match split.total() <= u64::from(Share::ALL.0) {
            true => Ok(split),
            false => Err("the shares of `split` are more than 100%".to_owned()),
        }
    }

    pub(crate) fn key(&self) -> &Template {
        &self.key
    }

    /// Names of the routes with their shares.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&str, Share)> {
        self.groups.iter().map(|group| (&*group.route, group.share))
    }

    /// Returns the name of the route that gets a request; `None`: it stays, as do those without a
    /// key.
    pub(crate) fn route_of(&self, request: &Request) -> Option<&str> {
        let key = self.key.expand(request).ok().filter(|key| !key.is_empty())?;
        self.route_of_key(&key)
    }

    fn route_of_key(&self, key: &str) -> Option<&str> {
        let key = hash(key.as_bytes());
        let rest = u64::from(Share::ALL.0).saturating_sub(self.total()) as u32;
        let stays = (None, score(key, hash(b""), rest));
        let groups = self.groups.iter();
        let groups =
            groups.map(|group| (Some(&*group.route), score(key, group.owner, group.share.0)));
        groups.fold(stays, |best, other| if other.1 > best.1 { other } else { best }).0
    }

    /// Sum of the shares.
    fn total(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.share.0)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(shares: &[(&str, u32)]) -> Split {
        let key = Template::parse("{client_ip}").unwrap();
        let share = |(name, percent): &(&str, u32)| ((*name).to_owned(), Share(percent * 10_000));
        Split::new(key, shares.iter().map(share)).unwrap()
    }

    fn groups(split: &Split) -> Vec<Option<&str>> {
        (0..10_000).map(|number| split.route_of_key(&format!("10.0.0.{number}"))).collect()
    }

    #[test]
    fn shares_are_those_of_the_keys() {
        for shares in [
            &[("a", 0)][..],
            &[("a", 5)],
            &[("a", 100)],
            &[("a", 5), ("b", 20)],
            &[("a", 0), ("b", 100)],
        ] {
            let split = split(shares);
            let found = groups(&split);
            for (name, percent) in shares {
                let count = found.iter().filter(|it| **it == Some(name)).count() as u32;
                let expected = percent * 100;
                // Four standard deviations of at most 50.
                assert!(count.abs_diff(expected) <= 200, "{shares:?} {name}: {count}");
                assert!(percent % 100 != 0 || count == expected, "{shares:?} {name}: {count}");
            }
        }
    }

    #[test]
    fn larger_share_takes_keys_and_moves_no_others() {
        let (small, large) = (split(&[("a", 5)]), split(&[("a", 20)]));
        for (before, after) in groups(&small).into_iter().zip(groups(&large)) {
            assert!(
                before == after || (before, after) == (None, Some("a")),
                "{before:?} {after:?}"
            );
        }
        // With several groups, 10% have to move to the new one. It takes some of them from the other
        // group, which takes as many from the rest.
        let (one, two) = (split(&[("a", 10)]), split(&[("a", 10), ("b", 10)]));
        let moved = groups(&one).into_iter().zip(groups(&two)).filter(|(old, new)| old != new);
        let (to_new, others): (Vec<_>, Vec<_>) = moved.partition(|(_, new)| *new == Some("b"));
        assert!(to_new.len() <= 1_200 && others.len() <= 150, "{} {}", to_new.len(), others.len());
    }
}
