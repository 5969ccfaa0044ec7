//! Folders with files that upstreams and scripts name in their responses.

mod files; // the files in place of bodies

use std::path::PathBuf;

use weft_config::{ConfigResult, Key, Pair, ValueKind, quoted_table};

use self::files::AccelFiles;
use super::layer::{Layer, OpenContext};
use super::scope::{Finding, Scope};
use super::{RouteOption, RouteOptions};
use crate::base::script_files::AllScripts;

/// A folder, and the beginning of the paths that name its files in `X-Accel-Redirect`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AccelFolder {
    /// Beginning of the paths, without a slash at its end.
    prefix: String,
    folder: PathBuf,
    /// Patterns of files that are never sent, because they are scripts.
    withheld: Vec<String>,
}

/// Folders with the files that responses may name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AccelOptions {
    folders: Option<Vec<AccelFolder>>,
}

impl AccelOptions {
    /// Withholds the files that are scripts of a route.
    pub(crate) fn withhold(&mut self, scripts: &AllScripts) {
        for AccelFolder { folder, withheld, .. } in self.folders.iter_mut().flatten() {
            *withheld = scripts.withheld(folder);
        }
    }
}

impl RouteOption for AccelOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "accel",
        help: "folders with the files that upstreams and scripts may name in `X-Accel-Redirect`, by the \
               beginning of the path there, or in `X-Sendfile`: `{ \"/protected/\" = \"/srv/private\" }`",
        kind: ValueKind::Pairs(set_accel),
        show: |options| match &options.folders {
            None => String::new(),
            Some(list) if list.is_empty() => "{}".to_owned(),
            Some(list) => {
                let pair = |it: &AccelFolder| {
                    (format!("{}/", it.prefix), it.folder.to_string_lossy().into_owned())
                };
                quoted_table(list.iter().map(pair))
            }
        },
        ..Key::FILE_ONLY
    }];

    fn or(self, outer: &Self) -> Self {
        AccelOptions { folders: self.folders.or_else(|| outer.folders.clone()) }
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let lacks_application = scope.route().is_some_and(|route| !route.has_application);
        vec![(
            self.folders.is_some() && lacks_application,
            "`accel` has no effect on a route without upstreams and scripts",
        )]
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let folders = self.folders.as_ref().filter(|folders| !folders.is_empty());
        let files = folders.map(|folders| AccelFiles::open(folders)).transpose()?;
        let layer = |files: AccelFiles| Layer::of_worker(move || files.for_worker());
        Ok(files.map(layer).into_iter().collect())
    }
}

fn set_accel(options: &mut AccelOptions, pairs: Vec<Pair>) -> ConfigResult {
    let mut folders = Vec::<AccelFolder>::new();
    for Pair { name, value, base } in pairs {
        let is_permitted = |b: u8| b.is_ascii_graphic() && !b"?#%*{}".contains(&b);
        if !name.value.starts_with('/') || !name.value.bytes().all(is_permitted) {
            let message =
                "expected the beginning of a path such as /protected/, without ? # % * { }";
            return Err(name.problem(format!("{message}, found {:?}", name.value)));
        }
        if value.value.is_empty() {
            return Err(value.problem("expected the path of a folder"));
        }
        let prefix = name.value.trim_end_matches('/').to_owned();
        if folders.iter().any(|known| known.prefix == prefix) {
            return Err(name.problem(format!("the path {prefix}/ has two folders")));
        }
        let (folder, withheld) = (base.join(&value.value), Vec::new());
        folders.push(AccelFolder { prefix, folder, withheld });
    }
    options.folders = Some(folders);
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
            (&[("/p/*", "a")], Err("found \"/p/*\"")),
            (&[("/p/", "")], Err("expected the path of a folder")),
        ] {
            let at =
                |text: &str| Located { location: ConfigLocation::Unknown, value: text.to_owned() };
            let pair = |(name, value): &(&str, &str)| Pair {
                name: at(name),
                value: at(value),
                base: "/etc".into(),
            };
            let mut options = AccelOptions::default();
            let set = set_accel(&mut options, pairs.iter().map(pair).collect());
            let found = set
                .map(|()| (AccelOptions::KEYS[0].show)(&options))
                .map_err(|problem| problem.message);
            match (&found, expected) {
                (Ok(shown), Ok(expected)) => assert_eq!(shown, expected),
                (Err(message), Err(expected)) => assert!(message.contains(expected), "{message}"),
                _ => panic!("{pairs:?}: {found:?}"),
            }
        }
    }
}
