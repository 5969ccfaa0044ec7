//! Keys of a route by which other routes get shares of its requests: `split` and `split_key`.

use weft_config::{ConfigResult, Key, Located, Pair, ValueKind, quoted, quoted_table};

use crate::route::Share;

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
        flag: "",
        argument: "",
        help: "shares of the requests that other routes get, such as `{ \"@canary\" = \"5%\" }`",
        kind: ValueKind::Pairs(|config, pairs| {
            config.shares = pairs.into_iter().map(share).collect::<ConfigResult<_>>()?;
            Ok(())
        }),
        show: |config| {
            let shares = config.shares.iter();
            quoted_table(shares.map(|(name, share)| (name.value.clone(), share.to_string())))
        },
    },
    Key {
        name: "split_key",
        flag: "",
        argument: "",
        help: "value by which `split` chooses, such as {cookie.session}; requests without a value \
               stay; by default the address of the client",
        kind: ValueKind::Text(|config, text| {
            config.key = Some(text);
            Ok(())
        }),
        show: |config| config.key.as_ref().map_or_else(String::new, |text| quoted(&text.value)),
    },
];

fn share(Pair { name, value, .. }: Pair) -> ConfigResult<(Located<String>, Share)> {
    if name.value.strip_prefix('@').is_none_or(str::is_empty) {
        let found = format!("expected the name of a route such as @canary, found {:?}", name.value);
        return Err(name.problem(found));
    }
    match Share::parse(&value.value) {
        Some(share) => Ok((name, share)),
        None => Err(value.problem(Share::EXPECTED)),
    }
}
