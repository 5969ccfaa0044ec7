//! The help text, generated from the lists of keys that the parsers use.

use std::ffi::OsString;

use weft_config::help::{push_key, push_option};
use weft_config::{SectionKey, suggest};

use super::kubernetes::KUBERNETES_OPTIONS;
use crate::config::{Config, Section, sections};

const OVERVIEW: &str = "\
Serves files, and forwards requests to applications, over HTTP and HTTPS.

Usage: weft [DIR] [OPTION]...          serve a directory [default: .]
       weft --config FILE [OPTION]...  serve what a configuration describes
       weft check FILE [--print]       check a configuration, and exit
       weft reload FILE|--pid PID      reload a server, and print the result
       weft cache status FILE          or list, or purge: stored responses
       weft certificates FILE          list, --revoke NAME, or --roll-over keys
       weft fmt FILE... [--check]      format files; `weft schema`: for editors
       weft import nginx|caddy FILE    convert nginx.conf or a Caddyfile
       weft kubernetes [OPTION]...     serve what the objects of a cluster describe

";

/// The options that do not correspond to a key, and the most important of the others.
const FIRST: [(&str, &str); 7] = [
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

/// The subject of a help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelpTopic {
    Overview,
    /// One of [`groups`].
    Group(&'static str),
    All,
}

/// Names of the groups of options: checks, and sections.
fn groups() -> impl Iterator<Item = &'static str> + Clone {
    let of_sections = sections().iter().map(|section| section.help_group);
    ["check", "kubernetes"].into_iter().chain(of_sections).filter(|group| !group.is_empty())
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
        let groups = groups().collect::<Vec<_>>().join(", ");
        help.push_str(&format!("\nGroups of options: {groups}\n"));
    }
    let has_group = |group: &str| {
        topic == HelpTopic::All || matches!(topic, HelpTopic::Group(it) if it == group)
    };
    if has_group("check") {
        push_title(&mut help, "Checks:");
        push_option(&mut help, "--print", "print the configuration with all defaults");
        push_option(&mut help, "--strict", "take warnings for errors: status 1 in place of 3");
        push_option(&mut help, "--pid PID", "with reload: the running server, in place of FILE");
    }
    if has_group("kubernetes") {
        push_title(&mut help, "Kubernetes, with the options of all other groups:");
        KUBERNETES_OPTIONS.iter().for_each(|(head, text)| push_option(&mut help, head, text));
    }
    let defaults = Config::shown_defaults();
    for section in sections().iter().filter(|section| !section.help_group.is_empty()) {
        if has_group(section.help_group) {
            push_section(&mut help, section, &defaults);
        }
    }
    help
}

fn push_title(help: &mut String, title: &str) {
    let separator = if help.is_empty() { "" } else { "\n" };
    help.push_str(&format!("{separator}{title}\n"));
}

fn push_section(help: &mut String, section: &Section, defaults: &Config) {
    push_title(help, section.title);
    for key in &section.keys {
        push_key(help, key, defaults);
        // The private key of a certificate has a separate option.
        if key.spec().flag == "tls-cert" {
            push_option(help, "--tls-key FILE", "the private key of the certificate, in PEM");
        }
    }
    for (head, text) in section.other_options {
        push_option(help, head, text);
    }
}
