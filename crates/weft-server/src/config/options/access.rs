//! Options that decide which requests a route serves.

use std::path::Path;

use weft::Network;
use weft_config::{
    ConfigResult, Key, Located, ValueKind, WordOrPath, quoted, quoted_list, quoted_time,
};

use super::fields::{check_request_name, parse_name};
use super::{NONE, RouteOptions, Setting, show, show_setting};
use crate::sections::auth_url::AuthUrl;
use crate::sections::limits::networks;

/// An origin that CORS allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Any,
    Only(String),
}

/// Requirements of a route with networks and authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Satisfy {
    All,
    Any,
}

pub(super) const ALLOW: Key<RouteOptions> = Key {
    name: "allow",
    flag: "allow",
    argument: "NETWORK",
    help: "networks of the clients that are allowed; others: 403",
    kind: ValueKind::Texts(|options, texts| networks(texts).map(|list| options.allow = Some(list))),
    show: |options| options.allow.as_deref().map_or_else(String::new, show_networks),
};

pub(super) const DENY: Key<RouteOptions> = Key {
    name: "deny",
    flag: "deny",
    argument: "NETWORK",
    help: "networks of clients that are refused, even within allowed ones: 403",
    kind: ValueKind::Texts(|options, texts| networks(texts).map(|list| options.deny = Some(list))),
    show: |options| options.deny.as_deref().map_or_else(String::new, show_networks),
};

pub(super) const ALLOW_FILE: Key<RouteOptions> = Key {
    name: "allow_file",
    flag: "allow-file",
    argument: "FILE",
    help: "file with further networks that are allowed, one in each line, # begins a comment; \
           reloaded when it changes",
    kind: ValueKind::Path(|options, path| options.allow_file = Some(path.value)),
    show: |options| show_path(options.allow_file.as_deref()),
};

pub(super) const DENY_FILE: Key<RouteOptions> = Key {
    name: "deny_file",
    flag: "deny-file",
    argument: "FILE",
    help: "file with further networks that are refused, as in `allow_file`",
    kind: ValueKind::Path(|options, path| options.deny_file = Some(path.value)),
    show: |options| show_path(options.deny_file.as_deref()),
};

pub(super) const CLIENT_CERT_REQUIRED: Key<RouteOptions> = Key {
    name: "client_cert_required",
    flag: "",
    argument: "",
    help: "refuse clients without a certificate that `client_ca` has signed, if `client_auth` is \
           optional: 403",
    kind: ValueKind::Bool(|options, switch| options.client_cert_required = Some(switch)),
    show: |options| show(options.client_cert_required.as_ref()),
};

pub(super) const CORS: Key<RouteOptions> = Key {
    name: "cors",
    flag: "cors",
    argument: "ORIGIN",
    help: "origins whose scripts may read responses (CORS): https://app.example, or *",
    kind: ValueKind::Texts(set_cors),
    show: |options| {
        let name = |origin: &Origin| match origin {
            Origin::Any => "*".to_owned(),
            Origin::Only(origin) => origin.clone(),
        };
        let list = |origins: &Vec<Origin>| quoted_list(origins.iter().map(name));
        options.cors.as_ref().map_or_else(String::new, list)
    },
};

pub(super) const MAINTENANCE: Key<RouteOptions> = Key {
    name: "maintenance",
    flag: "maintenance",
    argument: "FILE",
    help: "file that closes a site while it exists: requests get 503 with its content, or with the \
           page for 503 if it is empty; none: no such file",
    kind: ValueKind::WordOrPath(&[NONE], |options, file| {
        options.maintenance = Some(match file.value {
            WordOrPath::Word(_) => Setting::None,
            WordOrPath::Path(path) => Setting::Value(path),
        });
    }),
    show: |options| {
        show_setting(options.maintenance.as_ref(), |path| path.to_string_lossy().into_owned())
    },
};

pub(super) const BASIC_AUTH: Key<RouteOptions> = Key {
    name: "basic_auth",
    flag: "basic-auth",
    argument: "FILE",
    help: "file of users and hashed passwords that requests must present (htpasswd with \
           bcrypt, SHA-crypt or Argon2), reloaded when it changes; none: no authentication",
    kind: ValueKind::WordOrPath(&[NONE], |options, file| {
        options.basic_auth = Some(match file.value {
            WordOrPath::Word(_) => Setting::None,
            WordOrPath::Path(path) => Setting::Value(path),
        });
    }),
    show: |options| {
        show_setting(options.basic_auth.as_ref(), |path| path.to_string_lossy().into_owned())
    },
};

pub(super) const REALM: Key<RouteOptions> = Key {
    name: "realm",
    flag: "realm",
    argument: "TEXT",
    help: "realm of basic_auth, which browsers display (Restricted)",
    kind: ValueKind::Text(set_realm),
    show: |options| options.realm.as_deref().map_or_else(String::new, quoted),
};

pub(super) const FORWARD_AUTH: Key<RouteOptions> = Key {
    name: "forward_auth",
    flag: "",
    argument: "",
    help: "URL of a server that is asked about each request: with a status of 2xx the request \
           continues, any other response is that for the client; none: no such server",
    kind: ValueKind::Text(set_forward_auth),
    show: |options| show_setting(options.forward_auth.as_ref(), |url| url.text.clone()),
};

pub(super) const FORWARD_AUTH_HEADERS: Key<RouteOptions> = Key {
    name: "forward_auth_headers",
    flag: "",
    argument: "",
    help: "names of fields of the response of `forward_auth` that upstreams and scripts get, in \
           place of those of the client",
    kind: ValueKind::Texts(|options, texts| {
        let names = texts.iter().map(|text| parse_name(text, &text.value, check_request_name));
        options.forward_auth_headers = Some(names.collect::<ConfigResult<_>>()?);
        Ok(())
    }),
    show: |options| {
        let names = options.forward_auth_headers.as_ref();
        names.map_or_else(String::new, |names| quoted_list(names.iter()))
    },
};

pub(super) const FORWARD_AUTH_TIMEOUT: Key<RouteOptions> = Key {
    name: "forward_auth_timeout",
    flag: "",
    argument: "",
    help: "timeout for the response of `forward_auth` (10s); then 504",
    kind: ValueKind::Time(|options, time| options.forward_auth_timeout = Some(time)),
    show: |options| options.forward_auth_timeout.map_or_else(String::new, quoted_time),
};

pub(super) const SATISFY: Key<RouteOptions> = Key {
    name: "satisfy",
    flag: "satisfy",
    argument: "MODE",
    help: "requirement if there are networks (`allow`, `deny`) and authentication: all, or \
           any of them (all)",
    kind: ValueKind::Choice(&["all", "any"], |options, choice| {
        options.satisfy = Some(if choice == "any" { Satisfy::Any } else { Satisfy::All });
    }),
    show: |options| match options.satisfy {
        None => String::new(),
        Some(Satisfy::All) => quoted("all"),
        Some(Satisfy::Any) => quoted("any"),
    },
};

fn set_forward_auth(options: &mut RouteOptions, text: Located<String>) -> ConfigResult {
    options.forward_auth = Some(match &*text.value {
        NONE => Setting::None,
        url => Setting::Value(AuthUrl::parse(url).map_err(|invalid| text.problem(invalid))?),
    });
    Ok(())
}

fn set_cors(options: &mut RouteOptions, texts: Vec<Located<String>>) -> ConfigResult {
    let origin = |text: Located<String>| {
        let host = text.value.split_once("://").map_or("", |(_, host)| host);
        let is_permitted = |c: char| !c.is_ascii_uppercase() && !c.is_whitespace() && c != '*';
        match &*text.value {
            "*" => Ok(Origin::Any),
            origin
                if !host.is_empty() && !host.contains('/') && origin.chars().all(is_permitted) =>
            {
                Ok(Origin::Only(origin.to_owned()))
            }
            origin => Err(text.problem(format!(
                "expected an origin such as https://app.example (in lower case, without a path) \
                 or *, found {origin:?}"
            ))),
        }
    };
    options.cors = Some(texts.into_iter().map(origin).collect::<ConfigResult<_>>()?);
    Ok(())
}

fn set_realm(options: &mut RouteOptions, text: Located<String>) -> ConfigResult {
    if text.value.chars().any(char::is_control) {
        return Err(text.problem("a realm has no control characters"));
    }
    options.realm = Some(text.value);
    Ok(())
}

fn show_path(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| quoted(&path.to_string_lossy()))
}

fn show_networks(networks: &[Network]) -> String {
    quoted_list(networks.iter().map(ToString::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_urls_into_upstream_and_target() {
        for (text, expected) in [
            ("http://a", Some(("http://a", "/"))),
            ("http://a:1/b/c?d=e", Some(("http://a:1", "/b/c?d=e"))),
            ("https://a?b", Some(("https://a", "/?b"))),
            ("unix:/run/a.sock", Some(("unix:/run/a.sock", "/"))),
            ("unix:/run/a.sock:/b?c", Some(("unix:/run/a.sock", "/b?c"))),
            ("a/b", None),
            ("http:///b", None),
            ("http://a/b c", None),
            ("http://a/b#c", None),
            ("ftp://a/", None),
        ] {
            let url = AuthUrl::parse(text).ok();
            let found = url.map(|url| (url.upstream.to_string(), url.target));
            let expected = expected.map(|(url, target)| (url.to_owned(), target.to_owned()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
