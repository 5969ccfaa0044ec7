//! The help text, generated from the lists of keys that the parsers use.

use std::ffi::OsString;

use weft_config::help::{push_key, push_option};
use weft_config::{SectionKey, suggest};

use crate::config::{ACME, FILES, FilesConfig, LIMITS, LOG, OPTIONS, STATUS, TLS, TOP};

const OVERVIEW: &str = "\
Serves files, and forwards requests to applications, over HTTP and HTTPS.

Usage: weft [DIR] [OPTION]...          serve a directory [default: .]
       weft --config FILE [OPTION]...  serve what a configuration describes
       weft check FILE [--print]       check a configuration, and exit
       weft certificates FILE          list, --revoke NAME, or --roll-over keys
       weft fmt FILE... [--check]      format configuration files
       weft schema                     print a JSON schema, for editors
       weft import nginx FILE          print nginx.conf as a file of weft

";

/// The options that do not correspond to a key, and the most important of the others.
const FIRST: [(&str, &str); 8] = [
    ("-c, --config FILE", "configuration file or directory; options override it"),
    ("-p, --port PORT", "the same as --listen 127.0.0.1:PORT"),
    ("--listen ADDR", "address to listen on, such as :80; may be repeated"),
    (
        "--route ROUTE",
        "add a route: 'HOST/PREFIX -> FOLDER' (files), '>> URL...' (upstreams), '=> FOLDER' (CGI) \
         or '<< URL' (a redirect)",
    ),
    ("--list", "list directories without an index file"),
    ("--tls-self-signed", "serve HTTPS with a generated certificate"),
    ("-h, --help [GROUP]", "print this text, the options of a group, or all"),
    ("-V, --version", "print the version"),
];

/// The subject of a help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelpTopic {
    Overview,
    /// One of [`GROUPS`].
    Group(&'static str),
    All,
}

/// Groups of options, each with its title.
const GROUPS: [(&str, &str); 9] = [
    ("check", "Checks:"),
    ("server", "Addresses and process:"),
    ("logs", "Logs:"),
    ("tls", "TLS:"),
    ("acme", "Automatic certificates:"),
    ("status", "Status:"),
    ("files", "Files:"),
    ("routes", "All routes:"),
    ("limits", "Limits (sizes such as 16MiB, times such as 20s, 5m or never):"),
];

impl HelpTopic {
    pub(crate) fn parse(word: OsString) -> Result<HelpTopic, lexopt::Error> {
        let groups = || GROUPS.iter().map(|(group, _)| *group);
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
        let groups = GROUPS.iter().map(|(group, _)| *group).collect::<Vec<_>>().join(", ");
        help.push_str(&format!("\nGroups of options: {groups}\n"));
    }
    for (group, title) in GROUPS {
        if topic == HelpTopic::All || topic == HelpTopic::Group(group) {
            let separator = if help.is_empty() { "" } else { "\n" };
            push_group(&mut help, group, &format!("{separator}{title}\n"));
        }
    }
    help
}

fn push_group(help: &mut String, group: &str, title: &str) {
    match group {
        "check" => {
            help.push_str(title);
            push_option(help, "--print", "print the configuration with all defaults");
            push_option(help, "--strict", "take warnings for errors: status 1 in place of 3");
        }
        "server" => section(help, title, &TOP, &Default::default()),
        "logs" => {
            section(help, title, &LOG, &Default::default());
            push_option(help, "--no-log", "the same as --log none");
        }
        "tls" => section(help, title, &TLS, &Default::default()),
        "acme" => section(help, title, &ACME, &Default::default()),
        "status" => section(help, title, &STATUS, &Default::default()),
        "files" => {
            section(help, title, &FILES, &FilesConfig::defaults());
            push_option(help, "--follow-links", "the same as --links anywhere");
        }
        "routes" => section(help, title, &OPTIONS, &Default::default()),
        _ => section(help, title, &LIMITS, &Default::default()),
    }
}

fn section<S>(help: &mut String, title: &str, keys: &[impl SectionKey<S>], defaults: &S) {
    help.push_str(title);
    for key in keys {
        push_key(help, key, defaults);
        // The private key of a certificate has a separate option.
        if key.spec().flag == "tls-cert" {
            push_option(help, "--tls-key FILE", "the private key of the certificate, in PEM");
        }
    }
}
