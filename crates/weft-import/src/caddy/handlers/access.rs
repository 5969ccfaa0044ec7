//! `basic_auth` and `forward_auth`. If they cannot be carried over, their paths are refused.

use super::super::chain::{Chain, Flow};
use super::super::outcome::Outcome;
use super::super::tree::Directive;
use super::super::users::decode_base64;
use super::upstreams;

fn refuse(chain: &Chain<'_>, directive: &Directive, reason: &str, outcome: &mut Outcome) -> Flow {
    chain.lost(directive, format!("{reason}; its paths are refused"));
    outcome.refuse();
    Flow::Done
}

pub(super) fn password(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let (algorithm, realm) = match args {
        [] => ("bcrypt", None),
        [algorithm] => (&**algorithm, None),
        [algorithm, realm, ..] => (&**algorithm, Some(realm)),
    };
    if algorithm != "bcrypt" && algorithm != "argon2id" {
        return refuse(chain, directive, "passwords are hashed by bcrypt or Argon2", outcome);
    }
    let mut lines = String::new();
    for user in directive.children() {
        let Some(hash) = hash(user.arg(0)).filter(|_| user.args.len() == 1) else {
            return refuse(chain, user, "the hash is not known", outcome);
        };
        lines.push_str(&format!("{}:{hash}\n", user.name));
    }
    if lines.is_empty() {
        return refuse(chain, directive, "there are no users", outcome);
    }
    let Some(file) = chain.context.users.file(&lines) else {
        let reason = "users are in a file, which `--users FILE` writes";
        return refuse(chain, directive, reason, outcome);
    };
    if outcome.options.get("basic_auth").is_some_and(|known| *known != file.clone().into()) {
        return refuse(chain, directive, "a route has one file of users", outcome);
    }
    outcome.options.set("basic_auth", file);
    outcome.options.set_some("realm", realm.cloned());
    Flow::Next
}

/// Returns the hash, which old files have in base64.
fn hash(text: &str) -> Option<String> {
    let is_known = |text: &str| {
        ["$2a$", "$2b$", "$2y$", "$argon2id$"].iter().any(|begin| text.starts_with(begin))
    };
    match is_known(text) {
        true => Some(text.to_owned()),
        false => decode_base64(text).filter(|text| is_known(text)),
    }
}

pub(super) fn forward_auth(
    chain: &Chain<'_>,
    directive: &Directive,
    args: &[String],
    outcome: &mut Outcome,
) -> Flow {
    let [address] = args else {
        return refuse(chain, directive, "there is one server", outcome);
    };
    let mut uri = "/".to_owned();
    let mut scheme = "http";
    let mut names = Vec::new();
    for child in directive.children() {
        match &*child.name {
            "uri" => uri = child.arg(0).to_owned(),
            "copy_headers" => {
                let of_block = child.children().iter();
                let of_block = of_block.map(|it| (it, once_and_args(it)));
                let all = std::iter::once((child, child.args.clone())).chain(of_block);
                all.for_each(|(at, words)| copied(chain, at, &words, &mut names, outcome));
            }
            "transport" if child.children().iter().any(|it| it.name.starts_with("tls")) => {
                scheme = "https";
            }
            "trusted_proxies" | "transport" => {}
            _ => chain.lost(child, "there is no equivalent"),
        }
    }
    let url = upstreams::url(address, scheme).filter(|_| !uri.contains('{'));
    let Some(url) = url.filter(|url| url.starts_with("http")) else {
        return refuse(chain, directive, "its address has no equivalent", outcome);
    };
    if outcome.options.get("forward_auth").is_some() {
        return refuse(chain, directive, "a route has one server", outcome);
    }
    outcome.options.set("forward_auth", format!("{url}{uri}"));
    outcome.options.set_filled("forward_auth_headers", names);
    Flow::Next
}

fn once_and_args(directive: &Directive) -> Vec<String> {
    std::iter::once(directive.name.clone()).chain(directive.args.iter().cloned()).collect()
}

/// Adds the names of fields that upstreams get. A field with another name is lost, and the client
/// cannot send it.
fn copied(
    chain: &Chain<'_>,
    at: &Directive,
    words: &[String],
    names: &mut Vec<String>,
    outcome: &mut Outcome,
) {
    for word in words {
        match word.split_once('>') {
            None => names.push(word.clone()),
            Some((_, renamed)) => {
                chain.lost(at, "fields keep their names");
                outcome.add_to("remove_request_headers", [renamed.to_owned()]);
            }
        }
    }
}
