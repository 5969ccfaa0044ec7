//! A member of the upstreams of a proxy or a stream: its URL, and the options behind it. Pure.

use std::fmt;

use super::upstream_url::UpstreamUrl;
use crate::base::rendezvous::hash;

/// One of the upstreams of a proxy or a stream, as it is configured: `http://app:3000/ weight=3
/// backup`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamMember {
    /// URL of the upstream.
    pub url: UpstreamUrl,
    /// Share of the requests in relation to the weights of the others. Default 1.
    pub weight: u32,
    /// Gets requests only if no other upstream can get them. Default false.
    pub is_backup: bool,
    /// Maximum connections of one worker; `None`: as for all upstreams of the route.
    pub max_connections: Option<usize>,
}

/// Configured properties of an upstream.
#[derive(Clone, Copy, Debug)]
pub struct MemberShare {
    /// The upstream gets requests only if no other one can get them.
    pub is_backup: bool,
    /// Hash of the address of the upstream. The same keys belong to the same addresses in every
    /// worker and every server, in any order of the upstreams.
    pub seed: u64,
}

/// Largest weight, as in nginx's 16 bits. The sum of all weights has to fit into 32 bits.
pub const MAX_WEIGHT: u32 = 65_535;

const MAX_CONNECTIONS: u32 = 65_535;

/// Names of the options, for messages.
const OPTIONS: &str = "weight=NUMBER, backup and max_connections=NUMBER";

impl From<UpstreamUrl> for UpstreamMember {
    fn from(url: UpstreamUrl) -> UpstreamMember {
        UpstreamMember { url, weight: 1, is_backup: false, max_connections: None }
    }
}

impl UpstreamMember {
    /// Returns the properties that the selection of an upstream depends on.
    pub fn share(&self) -> MemberShare {
        MemberShare { is_backup: self.is_backup, seed: hash(self.url.to_string().as_bytes()) }
    }

    /// Checks the upstreams of a route or stream.
    ///
    /// # Errors
    /// If one of them is given twice, if all are backups, or if a service has a weight.
    pub fn check_list(members: &[UpstreamMember]) -> Result<(), String> {
        if let Some(member) = members.iter().find(|it| it.url.is_service() && it.weight != 1) {
            return Err(format!("{}: the records of a service have its weights", member.url));
        }
        let mut others = members.iter().map(|member| &member.url);
        while let Some(url) = others.next() {
            if let Some(same) = others.clone().find(|other| other.is_same_upstream(url)) {
                let problem = match url == same {
                    true => format!("the upstream {url} is given twice"),
                    false => format!("{url} and {same} are the same upstream"),
                };
                return Err(format!(
                    "{problem}; for twice the requests of another, write `{url} weight=2`"
                ));
            }
        }
        match !members.is_empty() && members.iter().all(|member| member.is_backup) {
            true => Err("all upstreams are backups; at least one has to be none".to_owned()),
            false => Ok(()),
        }
    }

    /// Parses URLs separated by white space. The options of an upstream are the words behind its
    /// URL.
    ///
    /// # Errors
    /// The first invalid URL or option.
    pub fn parse_list(
        text: &str,
        parse_url: impl Fn(&str) -> Result<UpstreamUrl, String>,
    ) -> Result<Vec<UpstreamMember>, String> {
        let mut members: Vec<UpstreamMember> = Vec::new();
        for word in text.split_whitespace() {
            let Some((name, value)) = split_option(word) else {
                let url = parse_url(word).map_err(|error| match members.last() {
                    Some(last) if last.url.is_unix() => {
                        format!("{word}: the path of a socket, such as {}, has no blank", last.url)
                    }
                    _ => error,
                })?;
                members.push(url.into());
                continue;
            };
            let Some(member) = members.last_mut() else {
                return Err(format!("{word}: an option stands behind the URL of its upstream"));
            };
            member.set(word, name, value)?;
        }
        Ok(members)
    }

    fn set(&mut self, word: &str, name: &str, value: Option<&str>) -> Result<(), String> {
        let number = |max: u32| {
            let parsed = value.and_then(|value| value.parse().ok());
            let parsed = parsed.filter(|number| (1..=max).contains(number));
            parsed.ok_or_else(|| format!("{word}: expected {name}= and a number from 1 to {max}"))
        };
        match (name, value) {
            ("weight", _) => self.weight = number(MAX_WEIGHT)?,
            ("max_connections", _) => {
                self.max_connections = Some(number(MAX_CONNECTIONS)? as usize);
            }
            ("backup", None) => self.is_backup = true,
            _ => {
                return Err(format!("{word}: unknown option of an upstream; known: {OPTIONS}"));
            }
        }
        Ok(())
    }
}

/// Splits an option into its name and its value. Returns `None` for a word that is no option, which
/// is a URL.
fn split_option(word: &str) -> Option<(&str, Option<&str>)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') && !name.is_empty();
    (is_name && (value.is_some() || name == "backup")).then_some((name, value))
}

impl fmt::Display for UpstreamMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)?;
        if self.weight != 1 {
            write!(f, " weight={}", self.weight)?;
        }
        if self.is_backup {
            f.write_str(" backup")?;
        }
        match self.max_connections {
            Some(number) => write!(f, " max_connections={number}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_options_behind_urls() {
        for (text, expected) in [
            ("http://a/  http://b/", Ok("http://a/ | http://b/")),
            ("http://a/ weight=3 http://b/ backup", Ok("http://a/ weight=3 | http://b/ backup")),
            (
                "http://a/ max_connections=9 backup weight=2",
                Ok("http://a/ weight=2 backup max_connections=9"),
            ),
            ("http://a/ weight=1", Ok("http://a/")),
            // An equals sign in a path.
            ("unix:/run/a=b.sock http://a/x=1", Ok("unix:/run/a=b.sock | http://a/x=1")),
            ("weight=3 http://a/", Err("weight=3: an option stands behind the URL")),
            (
                "unix:/run/my app.sock",
                Err("app.sock: the path of a socket, such as unix:/run/my, has"),
            ),
            ("http://a/ weight=0", Err("weight=0: expected weight= and a number from 1 to 65535")),
            ("http://a/ weight=70000", Err("weight=70000: expected")),
            ("http://a/ weight=", Err("weight=: expected")),
            ("http://a/ max_connections=x", Err("max_connections=x: expected")),
            ("http://a/ backup=1", Err("backup=1: unknown option of an upstream; known: weight=")),
            ("http://a/ wieght=3", Err("wieght=3: unknown option")),
            ("http://a/ weight", Err("weight: ")),
        ] {
            let members = UpstreamMember::parse_list(text, str::parse);
            let shown = members.map(|members| {
                members.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ")
            });
            match (&shown, expected) {
                (Ok(shown), Ok(expected)) => assert_eq!(shown, expected, "{text}"),
                (Err(error), Err(start)) => assert!(error.starts_with(start), "{text}: {error}"),
                _ => panic!("{text}: {shown:?}"),
            }
        }
    }
}
