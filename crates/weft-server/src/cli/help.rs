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

/// A group of options, or the commands.
pub(super) struct HelpGroup {
    name: &'static str,
    pub(super) title: &'static str,
    /// Heads, such as an option with its argument, and their meanings.
    pub(super) entries: Vec<(String, String)>,
}

impl HelpTopic {
    pub(crate) fn parse(word: OsString) -> Result<HelpTopic, lexopt::Error> {
        if word == "all" {
            return Ok(HelpTopic::All);
        }
        let groups: Vec<&str> = groups().iter().map(|group| group.name).collect();
        groups.iter().find(|group| word == **group).map(|it| HelpTopic::Group(it)).ok_or_else(
            || {
                let hint = suggest(&word.to_string_lossy(), groups.iter().copied().chain(["all"]));
                let hint = hint.map_or_else(
                    || format!("expected {} or all", groups.join(", ")),
                    |suggestion| format!("did you mean {suggestion}?"),
                );
                format!("there is no group {word:?} of options; {hint}").into()
            },
        )
    }

    fn has(self, group: &HelpGroup) -> bool {
        self == HelpTopic::All || self == HelpTopic::Group(group.name)
    }
}

pub(crate) fn help(topic: HelpTopic) -> String {
    let (mut help, groups) = (String::new(), groups());
    if let HelpTopic::Overview | HelpTopic::All = topic {
        help.push_str(OVERVIEW);
        FIRST.iter().for_each(|(head, text)| push_option(&mut help, head, text));
    }
    if topic == HelpTopic::Overview {
        let names = groups.iter().map(|group| group.name).filter(|name| *name != KUBERNETES);
        help.push_str(&format!("\nGroups: {}\n", names.collect::<Vec<_>>().join(", ")));
    }
    for group in groups.iter().filter(|group| topic.has(group)) {
        let separator = if help.is_empty() { "" } else { "\n" };
        help.push_str(&format!("{separator}{}\n", group.title));
        group.entries.iter().for_each(|(head, text)| push_option(&mut help, head, text));
    }
    help
}

/// Returns the commands, and then the groups of options.
fn groups() -> Vec<HelpGroup> {
    let commands = HelpGroup::new("commands", "Commands:", COMMANDS);
    [commands].into_iter().chain(option_groups()).collect()
}

/// Returns the groups of options.
pub(super) fn option_groups() -> Vec<HelpGroup> {
    let title = "Kubernetes, with the options of all other groups:";
    let fixed = [
        HelpGroup::new("check", "Checks:", &CHECK_OPTIONS),
        HelpGroup::new(KUBERNETES, title, &KUBERNETES_OPTIONS),
    ];
    let defaults = Config::shown_defaults();
    let sections = sections().iter().filter(|section| !section.help_group.is_empty());
    fixed.into_iter().chain(sections.map(|it| HelpGroup::of_section(it, &defaults))).collect()
}

const CHECK_OPTIONS: [(&str, &str); 3] = [
    ("--print", "print the configuration with all defaults"),
    ("--strict", "take warnings for errors: status 1 in place of 3"),
    ("--pid PID", "with reload, stop and upgrade: the running server, in place of FILE"),
];

impl HelpGroup {
    fn new(name: &'static str, title: &'static str, entries: &[(&str, &str)]) -> HelpGroup {
        let owned = |(head, text): &(&str, &str)| ((*head).to_owned(), (*text).to_owned());
        HelpGroup { name, title, entries: entries.iter().map(owned).collect() }
    }

    fn of_section(section: &Section, defaults: &Config) -> HelpGroup {
        let mut group = HelpGroup::new(section.help_group, section.title, &[]);
        for key in &section.keys {
            group.entries.extend(option_entry(key, defaults));
            // The private key of a certificate has a separate option.
            if key.spec().flag == "tls-cert" {
                let text = "the private key of the certificate, in PEM";
                group.entries.push(("--tls-key FILE".to_owned(), text.to_owned()));
            }
        }
        group.entries.extend(HelpGroup::new("", "", section.other_options).entries);
        group
    }
}
