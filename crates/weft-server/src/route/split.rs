//! Shares of the requests of a route that other routes of the host get. Pure.
//!
//! The choice depends on a key of the request and on the shares, so that a client stays in its
//! group. It is the same in all workers and servers.

use weft::Request;
use weft_config::{
    ConfigLocation, ConfigResult, Key, Located, Pair, ValueKind, quoted, quoted_table,
};

use crate::base::share::{Share, ShareGroups};
use crate::template::{GroupPatterns, Template};

/// Shares of the requests of a route.
#[derive(Clone, Debug, Default)]
pub(crate) struct SplitConfig {
    /// Names of routes, with their `@`, and their shares.
    pub(crate) shares: Vec<(Located<String>, Share)>,
    pub(crate) key: Option<Located<String>>,
}

pub(crate) static SPLIT: [Key<SplitConfig>; 2] = [
    Key {
        name: "split",
        help: "shares of the requests that other routes get, such as `{ \"@canary\" = \"5%\" }`",
        kind: ValueKind::Pairs(|config, pairs| {
            config.shares = pairs.into_iter().map(parse_share).collect::<ConfigResult<_>>()?;
            Ok(())
        }),
        show: |config| {
            let shares = config.shares.iter();
            quoted_table(shares.map(|(name, share)| (name.value.clone(), share.to_string())))
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "split_key",
        help: "value by which `split` chooses, such as {cookie.session}; requests without a value \
               stay; by default the address of the client",
        kind: ValueKind::Text(|config, text| {
            config.key = Some(text);
            Ok(())
        }),
        show: |config| config.key.as_ref().map_or_else(String::new, |text| quoted(&text.value)),
        ..Key::FILE_ONLY
    },
];

fn parse_share(Pair { name, value, .. }: Pair) -> ConfigResult<(Located<String>, Share)> {
    if name.value.strip_prefix('@').is_none_or(str::is_empty) {
        let found = format!("expected the name of a route such as @canary, found {:?}", name.value);
        return Err(name.problem(found));
    }
    match Share::parse(&value.value) {
        Some(share) => Ok((name, share)),
        None => Err(value.problem(Share::EXPECTED)),
    }
}

/// Default of `split_key`.
const DEFAULT_KEY: &str = "{client_ip}";

/// The shares of a route, and the key by which requests belong to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Split {
    key: Template,
    /// Names of routes, without their `@`.
    groups: ShareGroups,
}

impl Split {
    /// Validates the shares and the key.
    pub(crate) fn plan(
        config: SplitConfig,
        patterns: GroupPatterns<'_>,
    ) -> ConfigResult<Option<Split>> {
        let SplitConfig { shares, key } = config;
        let Some((first, _)) = shares.first().cloned() else {
            return match key {
                Some(key) => Err(key.problem("`split_key` needs `split`")),
                None => Ok(None),
            };
        };
        let template = patterns.parse_template(key.as_ref().map_or(DEFAULT_KEY, |key| &key.value));
        let key = key.as_ref().unwrap_or(&first);
        let template = template.map_err(|message| key.problem(message))?;
        if template.as_literal().is_some() {
            return Err(key.problem("expected a text with placeholders, such as {client_ip}"));
        }
        let shares = shares
            .into_iter()
            .map(|(name, share)| (name.value.trim_start_matches('@').to_owned(), share));
        Split::new(template, shares).map(Some).map_err(|message| first.problem(message))
    }

    /// Returns the values of the keys.
    pub(crate) fn config(&self) -> SplitConfig {
        let at = |value: String| Located { location: ConfigLocation::Unknown, value };
        let shares = self.shares().map(|(name, share)| (at(format!("@{name}")), share)).collect();
        let key = self.key.source();
        SplitConfig { shares, key: (key != DEFAULT_KEY).then(|| at(key.to_owned())) }
    }

    /// Creates the division of requests by `key` between the named routes; the rest stays.
    ///
    /// # Errors
    /// If the shares are more than all requests.
    pub(crate) fn new(
        key: Template,
        shares: impl Iterator<Item = (String, Share)>,
    ) -> Result<Split, String> {
        Ok(Split { key, groups: ShareGroups::new(shares)? })
    }

    /// Names of the routes with their shares.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&str, Share)> {
        self.groups.shares()
    }

    /// Returns the name of the route that gets a request; `None`: it stays, as do those without a
    /// key.
    pub(crate) fn route_of(&self, request: &Request) -> Option<&str> {
        let key = self.key.expand(request).ok().filter(|key| !key.is_empty())?;
        self.groups.group_of(&key)
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
        (0..10_000).map(|number| split.groups.group_of(&format!("10.0.0.{number}"))).collect()
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
        // With several groups, 10% have to move to the new one. It takes some of them from the
        // other group, which takes as many from the rest.
        let (one, two) = (split(&[("a", 10)]), split(&[("a", 10), ("b", 10)]));
        let moved = groups(&one).into_iter().zip(groups(&two)).filter(|(old, new)| old != new);
        let (to_new, others): (Vec<_>, Vec<_>) = moved.partition(|(_, new)| *new == Some("b"));
        assert!(to_new.len() <= 1_200 && others.len() <= 150, "{} {}", to_new.len(), others.len());
    }
}
