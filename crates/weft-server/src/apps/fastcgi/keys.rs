//! Keys of a FastCGI, SCGI or uwsgi route, and of a files route with `php`, besides the keys that
//! name the upstreams.

use weft_config::{ConfigResult, Key, Located, ValueKind, quoted, quoted_list, quoted_path};
use weft_upstream::ProxySettings;

use crate::apps::proxy::upstream_keys;
use crate::apps::script::{index_name, variables};
use crate::apps::script_patterns::script_patterns;

/// Valid only in the table of a route.
static FASTCGI: [Key<ProxySettings>; 6] = [
    Key {
        name: "root",
        help: "directory of the scripts, or one script for all paths; by default the application \
               itself handles all paths",
        kind: ValueKind::Path(|settings, path| settings.fastcgi.root = Some(path.value)),
        show: |settings| quoted_path(settings.fastcgi.root.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "index",
        help: "index script of a directory",
        kind: ValueKind::Text(|settings, name| {
            settings.fastcgi.index = index_name(name)?;
            Ok(())
        }),
        show: |settings| quoted(&settings.fastcgi.index),
        ..Key::FILE_ONLY
    },
    Key {
        name: "suffix",
        help: "end of the names of scripts; no other file is run",
        kind: ValueKind::Text(set_suffix),
        show: |settings| quoted(&settings.fastcgi.suffix),
        ..Key::FILE_ONLY
    },
    Key {
        name: "scripts",
        help: "patterns of the scripts that are run, by their paths below the directory: `index.php`, \
               `admin/*.php`, `**/*.php`, or `~ REGEX` for the path of the request; with `!` in front, those \
               that are not run; by default all",
        kind: ValueKind::Texts(|settings, texts| {
            settings.fastcgi.scripts = Some(script_patterns(texts)?);
            Ok(())
        }),
        show: |settings| {
            let scripts = settings.fastcgi.scripts.as_ref();
            scripts.map_or_else(String::new, |texts| quoted_list(texts.iter()))
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "script_root",
        help: "path under which the application has the directory of the scripts, for instance in \
               a container; by default the same",
        kind: ValueKind::Text(set_script_root),
        show: |settings| quoted_path(settings.fastcgi.script_root.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "environment",
        help: "variables, which override the variables of the request: `NAME=VALUE`, or `NAME` \
               to pass on a variable of the server",
        kind: ValueKind::Texts(|settings, texts| {
            settings.fastcgi.environment = variables(texts)?;
            Ok(())
        }),
        show: |settings| quoted_list(settings.fastcgi.environment.iter().map(ToString::to_string)),
        ..Key::FILE_ONLY
    },
];

/// Keys of a files route with `php` that the files have, too, or that follow from them.
const FILES_KEYS: [&str; 2] = ["root", "index"];

/// Returns the keys of a FastCGI route.
pub(in crate::apps) fn fastcgi_keys() -> impl Iterator<Item = &'static Key<ProxySettings>> + Clone {
    FASTCGI.iter().chain(upstream_keys())
}

/// Keys of a FastCGI route that concern scripts beneath a root, or connections that are kept.
const NOT_SCGI: [&str; 7] = [
    "root",
    "index",
    "suffix",
    "scripts",
    "script_root",
    "max_idle_connections",
    "keep_alive_timeout",
];

/// Returns the keys of an SCGI route. A uwsgi route has the same keys.
pub(in crate::apps) fn scgi_keys() -> impl Iterator<Item = &'static Key<ProxySettings>> + Clone {
    fastcgi_keys().filter(|key| !NOT_SCGI.contains(&key.name))
}

/// Returns the keys of a files route with `php`, besides the keys of the files.
pub(in crate::apps) fn php_keys() -> impl Iterator<Item = &'static Key<ProxySettings>> + Clone {
    fastcgi_keys().filter(|key| !FILES_KEYS.contains(&key.name))
}

fn set_suffix(settings: &mut ProxySettings, suffix: Located<String>) -> ConfigResult {
    let name = suffix.value.strip_prefix('.').unwrap_or_default();
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        let message = format!("expected the end of a name such as .php, found {:?}", suffix.value);
        return Err(suffix.problem(message));
    }
    settings.fastcgi.suffix = suffix.value;
    Ok(())
}

/// Not relative to the configuration file: the path exists on another machine or in a container.
fn set_script_root(settings: &mut ProxySettings, root: Located<String>) -> ConfigResult {
    if !root.value.starts_with('/') {
        return Err(root.problem(format!("expected an absolute path, found {:?}", root.value)));
    }
    settings.fastcgi.script_root = Some(root.value.into());
    Ok(())
}
