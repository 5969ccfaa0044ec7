//! Folders with files that upstreams and scripts name in their responses.

use std::path::PathBuf;

use weft_config::{ConfigResult, Key, Pair, ValueKind, quoted_table};

use super::RouteOptions;

/// A folder, and the beginning of the paths that name its files in `X-Accel-Redirect`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccelFolder {
    /// Beginning of the paths, without a slash at its end.
    pub(crate) prefix: String,
    pub(crate) folder: PathBuf,
}

pub(super) const ACCEL: Key<RouteOptions> = Key {
    name: "accel",
    flag: "",
    argument: "",
    help: "folders with the files that upstreams and scripts may name in `X-Accel-Redirect`, by the \
           beginning of the path there, or in `X-Sendfile`: `{ \"/protected/\" = \"/srv/private\" }`",
    kind: ValueKind::Pairs(set_accel),
    show: |options| match &options.accel {
        None => String::new(),
        Some(list) if list.is_empty() => "{}".to_owned(),
        Some(list) => {
            let pair = |it: &AccelFolder| {
                (format!("{}/", it.prefix), it.folder.to_string_lossy().into_owned())
            };
            quoted_table(list.iter().map(pair))
        }
    },
};

fn set_accel(options: &mut RouteOptions, pairs: Vec<Pair>) -> ConfigResult {
    let mut folders = Vec::<AccelFolder>::new();
    for Pair { name, value, base } in pairs {
        let is_permitted = |b: u8| b.is_ascii_graphic() && !b"?#%".contains(&b);
        if !name.value.starts_with('/') || !name.value.bytes().all(is_permitted) {
            let message =
                "expected the beginning of a path such as /protected/, without `?`, `#` and `%`";
            return Err(name.problem(format!("{message}, found {:?}", name.value)));
        }
        if value.value.is_empty() {
            return Err(value.problem("expected the path of a folder"));
        }
        let prefix = name.value.trim_end_matches('/').to_owned();
        if folders.iter().any(|known| known.prefix == prefix) {
            return Err(name.problem(format!("the path {prefix}/ has two folders")));
        }
        folders.push(AccelFolder { prefix, folder: base.join(&value.value) });
    }
    options.accel = Some(folders);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_config::{ConfigLocation, Located};

    #[test]
    fn parses_and_shows_folders() {
        for (pairs, expected) in [
            (&[][..], Ok("{}")),
            (&[("/", "/srv/a")], Ok("{ \"/\" = \"/srv/a\" }")),
            (&[("/p", "a"), ("/q//", "/b")], Ok("{ \"/p/\" = \"/etc/a\", \"/q/\" = \"/b\" }")),
            (&[("/p", "a"), ("/p/", "b")], Err("the path /p/ has two folders")),
            (&[("p/", "a")], Err("found \"p/\"")),
            (&[("/p%2e/", "a")], Err("found \"/p%2e/\"")),
            (&[("/p q/", "a")], Err("found \"/p q/\"")),
            (&[("/p/", "")], Err("expected the path of a folder")),
        ] {
            let at =
                |text: &str| Located { location: ConfigLocation::Unknown, value: text.to_owned() };
            let pair = |(name, value): &(&str, &str)| Pair {
                name: at(name),
                value: at(value),
                base: "/etc".into(),
            };
            let mut options = RouteOptions::default();
            let set = set_accel(&mut options, pairs.iter().map(pair).collect());
            let found = set.map(|()| (ACCEL.show)(&options)).map_err(|problem| problem.message);
            match (&found, expected) {
                (Ok(shown), Ok(expected)) => assert_eq!(shown, expected),
                (Err(message), Err(expected)) => assert!(message.contains(expected), "{message}"),
                _ => panic!("{pairs:?}: {found:?}"),
            }
        }
    }
}
