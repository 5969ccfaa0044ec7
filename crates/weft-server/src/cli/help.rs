//! The help text, generated from the lists of keys that the parsers use.

use std::ffi::OsString;

use weft_config::help::{option_entry, push_option};
use weft_config::{SectionKey, suggest};

use super::kubernetes::KUBERNETES_OPTIONS;
use crate::config::{Config, Section, sections};

const OVERVIEW: &str = "\
Serves files, and forwards requests to applications, over HTTP and HTTPS.

Usage: weft [DIR] [OPTION]...          serve a directory [default: .]
       weft --config FILE [OPTION]...  serve what a configuration describes
       weft check FILE [--print]       check a configuration, and exit
       weft reload FILE|--pid PID      or stop, upgrade: control a server
       weft cache status FILE          or list, or purge: stored responses
       weft certificates FILE          list, --revoke NAME, or --roll-over keys
       weft fmt FILE... [--check]      format files; `weft schema`: for editors
       weft import nginx|caddy FILE    convert nginx.conf or a Caddyfile

";

/// All commands, each with its meaning.
pub(super) const COMMANDS: &[(&str, &str)] = &[
    ("weft [DIR] [OPTION]...", "serve a directory, by default the current one"),
    ("weft --config FILE [OPTION]...", "serve what a configuration describes"),
    ("weft check FILE [--print] [--strict]", "check a configuration, and exit"),
    ("weft reload FILE|--pid PID", "have a server reload its configuration, and print the result"),
    ("weft stop FILE|--pid PID", "stop a server, and wait until it has stopped"),
    (
        "weft upgrade FILE|--pid PID",
        "have a server start the program from its file anew and pass its sockets to it, and wait \
         until it serves",
    ),
    ("weft cache status FILE", "print the counts of the response cache"),
    ("weft cache list FILE [--hottest]", "list the largest, or hottest, stored responses"),
    (
        "weft cache purge FILE --url URL|--prefix URL|--tag TAG|--all [--soft]",
        "remove stored responses, or make them stale",
    ),
    (
        "weft certificates FILE [--revoke NAME [--reason REASON]|--roll-over]",
        "list the certificates that are ordered, revoke one, or change the keys of the accounts",
    ),
    ("weft cluster status FILE", "list the machines of a cluster"),
    (
        "weft fmt FILE... [--check]",
        "format configuration files, or name those that are not formatted",
    ),
    ("weft schema", "print a JSON schema of the configuration, for editors"),
    ("weft import nginx FILE", "print an nginx.conf as a configuration of weft"),
    ("weft import caddy FILE [--users FILE]", "print a Caddyfile as a configuration of weft"),
    (
        "weft hash-password [NAME]",
        "read a password, and print its hash, or the line of a user for a password file",
    ),
    (
        "weft kubernetes [OPTION]...",
        "serve what the objects of a Kubernetes cluster describe; see `weft --help kubernetes`",
    ),
    ("weft man weft|weft.toml", "print a manual page, in troff"),
    ("weft completions bash|zsh|fish", "print a script that completes command lines"),
];

/// The options that do not correspond to a key, and the most important of the others.
pub(super) const FIRST: [(&str, &str); 7] = [
    ("-c, --config FILE", "configuration file or directory; options override it"),
    ("-p, --port PORT", "the same as --listen 127.0.0.1:PORT"),
    ("--listen ADDR", "address to listen on, such as :80; may be repeated"),
    (
        "--route ROUTE",
        "add a route: 'HOST/PREFIX -> FOLDER' (files), '>> URL...' (upstreams), '=> FOLDER' (CGI) \
         or '<< URL' (a redirect)",
    ),
    ("--tls-self-signed", "serve HTTPS with a generated certificate"),
    ("-h, --help [GROUP]", "print this text, the options of a group, or all"),
    ("-V, --version", "print the version"),
];

/// The group of `weft kubernetes`, which its command names.
const KUBERNETES: &str = "kubernetes";

/// The subject of a help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelpTopic {
    Overview,
    /// One of [`groups`].
    Group(&'static str),
    All,
}

/// Names of the groups: commands, checks, and sections.
fn groups() -> impl Iterator<Item = &'static str> + Clone {
    let of_sections = sections().iter().map(|section| section.help_group);
    let fixed = ["commands", "check", KUBERNETES];
    fixed.into_iter().chain(of_sections).filter(|group| !group.is_empty())
}

impl HelpTopic {
    pub(crate) fn parse(word: OsString) -> Result<HelpTopic, lexopt::Error> {
        if word == "all" {
            return Ok(HelpTopic::All);
        }
        groups().find(|group| word == *group).map(HelpTopic::Group).ok_or_else(|| {
            let hint = suggest(&word.to_string_lossy(), groups().chain(["all"]));
            let hint = hint.map_or_else(
                || format!("expected {} or all", groups().collect::<Vec<_>>().join(", ")),
                |suggestion| format!("did you mean {suggestion}?"),
            );
            format!("there is no group {word:?} of options; {hint}").into()
        })
    }
}

pub(crate) fn help(topic: HelpTopic) -> String {
    let mut help = String::new();
    if let HelpTopic::Overview | HelpTopic::All = topic {
        help.push_str(OVERVIEW);
        FIRST.iter().for_each(|(head, text)| push_option(&mut help, head, text));
    }
    if topic == HelpTopic::Overview {
        let groups = groups().filter(|group| *group != KUBERNETES);
        let groups = groups.collect::<Vec<_>>().join(", ");
        help.push_str(&format!("\nGroups: {groups}\n"));
    }
    let has_group = |group: &str| {
        topic == HelpTopic::All || matches!(topic, HelpTopic::Group(it) if it == group)
    };
    if has_group("commands") {
        push_title(&mut help, "Commands:");
        COMMANDS.iter().for_each(|(usage, meaning)| push_option(&mut help, usage, meaning));
    }
    if has_group("check") {
        push_title(&mut help, CHECKS);
        CHECK_OPTIONS.iter().for_each(|(head, text)| push_option(&mut help, head, text));
    }
    if has_group(KUBERNETES) {
        push_title(&mut help, "Kubernetes, with the options of all other groups:");
        KUBERNETES_OPTIONS.iter().for_each(|(head, text)| push_option(&mut help, head, text));
    }
    let defaults = Config::shown_defaults();
    for section in sections().iter().filter(|section| has_group(section.help_group)) {
        if !section.help_group.is_empty() {
            push_title(&mut help, section.title);
            let entries = section_entries(section, &defaults);
            entries.iter().for_each(|(head, text)| push_option(&mut help, head, text));
        }
    }
    help
}

const CHECKS: &str = "Checks:";

const CHECK_OPTIONS: [(&str, &str); 3] = [
    ("--print", "print the configuration with all defaults"),
    ("--strict", "take warnings for errors: status 1 in place of 3"),
    ("--pid PID", "with reload, stop and upgrade: the running server, in place of FILE"),
];

/// Returns the options of the groups, each with its meaning, by the titles of the groups.
pub(super) fn option_entries() -> Vec<(&'static str, Vec<(String, String)>)> {
    let owned = |(head, text): (&str, &str)| (head.to_owned(), text.to_owned());
    let defaults = Config::shown_defaults();
    let groups = sections().iter().filter(|section| !section.help_group.is_empty());
    let groups = groups.map(|section| (section.title, section_entries(section, &defaults)));
    let checks = (CHECKS, CHECK_OPTIONS.map(owned).to_vec());
    [checks].into_iter().chain(groups).collect()
}

fn push_title(help: &mut String, title: &str) {
    let separator = if help.is_empty() { "" } else { "\n" };
    help.push_str(&format!("{separator}{title}\n"));
}

fn section_entries(section: &Section, defaults: &Config) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    for key in &section.keys {
        entries.extend(option_entry(key, defaults));
        // The private key of a certificate has a separate option.
        if key.spec().flag == "tls-cert" {
            let text = "the private key of the certificate, in PEM";
            entries.push(("--tls-key FILE".to_owned(), text.to_owned()));
        }
    }
    let others = section.other_options.iter();
    entries.extend(others.map(|(head, text)| ((*head).to_owned(), (*text).to_owned())));
    entries
}
