//! Keys of a FastCGI, SCGI or uwsgi route, and of a files route with `php`, besides the keys that name the
//! upstreams.

use weft_config::{ConfigResult, Key, Located, ValueKind, quoted, quoted_list};
use weft_upstream::ProxySettings;
use weft_upstream::script::ScriptVariable;

use crate::apps::proxy::upstream_keys;

/// Valid only in the table of a route.
static FASTCGI: [Key<ProxySettings>; 5] = [
    Key {
        name: "root",
        flag: "",
        argument: "",
        help: "directory of the scripts, or one script for all paths; by default the application \
               itself handles all paths",
        kind: ValueKind::Path(|settings, path| settings.fastcgi.root = Some(path.value)),
        show: |settings| {
            let root = settings.fastcgi.root.as_ref();
            root.map_or(String::new(), |root| quoted(&root.to_string_lossy()))
        },
    },
    Key {
        name: "index",
        flag: "",
        argument: "",
        help: "index script of a directory",
        kind: ValueKind::Text(set_index),
        show: |settings| quoted(&settings.fastcgi.index),
    },
    Key {
        name: "suffix",
        flag: "",
        argument: "",
        help: "end of the names of scripts; no other file is run",
        kind: ValueKind::Text(set_suffix),
        show: |settings| quoted(&settings.fastcgi.suffix),
    },
    Key {
        name: "script_root",
        flag: "",
        argument: "",
        help: "path under which the application has the directory of the scripts, for instance in \
               a container; by default the same",
        kind: ValueKind::Text(set_script_root),
        show: |settings| {
            let root = settings.fastcgi.script_root.as_ref();
            root.map_or(String::new(), |root| quoted(&root.to_string_lossy()))
        },
    },
    Key {
        name: "environment",
        flag: "",
        argument: "",
        help: "variables, which override the variables of the request: `NAME=VALUE`, or `NAME` \
               to pass on a variable of the server",
        kind: ValueKind::Texts(set_environment),
        show: |settings| quoted_list(settings.fastcgi.environment.iter().map(ToString::to_string)),
    },
];

/// Keys of a files route with `php` that the files have, too, or that follow from them.
const FILES_KEYS: [&str; 2] = ["root", "index"];

/// Returns the keys of a FastCGI route.
pub(in crate::apps) fn fastcgi_keys() -> impl Iterator<Item = &'static Key<ProxySettings>> + Clone {
    FASTCGI.iter().chain(upstream_keys())
}

/// Keys of a FastCGI route that concern scripts beneath a root, or connections that are kept.
const NOT_SCGI: [&str; 6] =
    ["root", "index", "suffix", "script_root", "max_idle_connections", "keep_alive_timeout"];

/// Returns the keys of an SCGI route, which are those of a uwsgi route.
pub(in crate::apps) fn scgi_keys() -> impl Iterator<Item = &'static Key<ProxySettings>> + Clone {
    fastcgi_keys().filter(|key| !NOT_SCGI.contains(&key.name))
}

/// Returns the keys of a files route with `php`, besides those of the files.
pub(in crate::apps) fn php_keys() -> impl Iterator<Item = &'static Key<ProxySettings>> + Clone {
    fastcgi_keys().filter(|key| !FILES_KEYS.contains(&key.name))
}

fn set_index(settings: &mut ProxySettings, name: Located<String>) -> ConfigResult {
    if name.value.is_empty() || name.value.starts_with('.') || name.value.contains(['/', '\0']) {
        return Err(name.problem(format!("expected the name of a script, found {:?}", name.value)));
    }
    settings.fastcgi.index = name.value;
    Ok(())
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

/// Not relative to the configuration file: the path is that of another machine or container.
fn set_script_root(settings: &mut ProxySettings, root: Located<String>) -> ConfigResult {
    if !root.value.starts_with('/') {
        return Err(root.problem(format!("expected an absolute path, found {:?}", root.value)));
    }
    settings.fastcgi.script_root = Some(root.value.into());
    Ok(())
}

fn set_environment(settings: &mut ProxySettings, variables: Vec<Located<String>>) -> ConfigResult {
    let parse = |text: Located<String>| {
        ScriptVariable::parse(&text.value).map_err(|invalid| text.problem(invalid))
    };
    settings.fastcgi.environment = variables.into_iter().map(parse).collect::<ConfigResult<_>>()?;
    Ok(())
}
