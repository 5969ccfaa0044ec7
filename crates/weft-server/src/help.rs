//! The help text, generated from the lists of keys that the parsers use.

use crate::config::{FILES, FilesConfig, Key, LIMITS, LOG, STATUS, TLS, TOP};

const BEGIN: &str = "\
Serves the files of a directory over HTTP.

Usage: weft [DIR] [OPTION]...
       weft --config FILE [OPTION]...
       weft check FILE [--print]

  DIR              directory to serve [default: ., if there is no --config and
                   no --route]
  --config FILE    read the configuration from a file; options override it
  --route ROUTE    add a route for a host and a prefix: 'HOST/PREFIX -> FOLDER'
                   (files), '>> URL...' (upstreams), '=> FOLDER' (CGI) or
                   '<< URL' (a redirect); without HOST for all hosts; may be
                   repeated
";

const END: &str = "
  check FILE       check a configuration file, and exit
  --print          with `check`: print the configuration with all defaults
  -h, --help       print this text
  -V, --version    print the version
";

pub(crate) fn help() -> String {
    let mut help = BEGIN.to_owned();
    section(&mut help, "", &TOP, &Default::default());
    section(&mut help, "\nLogs:\n", &LOG, &Default::default());
    option(&mut help, "--no-log", "the same as --log none");
    section(&mut help, "\nTLS:\n", &TLS, &Default::default());
    section(&mut help, "\nStatus:\n", &STATUS, &Default::default());
    section(&mut help, "\nFiles:\n", &FILES, &FilesConfig::defaults());
    option(&mut help, "--follow-links", "the same as --links anywhere");
    let limits = "\nLimits (sizes such as 16MiB, times such as 20s, 5m or never):\n";
    section(&mut help, limits, &LIMITS, &Default::default());
    help + END
}

fn section<T>(help: &mut String, title: &str, keys: &[Key<T>], defaults: &T) {
    help.push_str(title);
    for key in keys {
        let default = (key.show)(defaults);
        let head = match (key.is_switch(), &*default) {
            (true, "true") => format!("--{0}, --no-{0}", key.flag),
            (true, _) => format!("--{}", key.flag),
            (false, _) => format!("--{} {}", key.flag, key.argument),
        };
        let default = default.trim_start_matches(['[', '"']).trim_end_matches(['"', ']']);
        let repeated = if key.is_list() { "; may be repeated" } else { "" };
        let text = match (key.is_switch(), default) {
            (true, "true") => format!("{} [default]", key.help),
            (true, _) | (_, "") => format!("{}{repeated}", key.help),
            (false, default) => {
                format!("{}{repeated} [default:{NO_BREAK}{default}]", key.help)
            }
        };
        option(help, &head, &text);
        // The private key of a certificate has a separate option.
        if key.flag == "tls-cert" {
            option(help, "--tls-key FILE", "the private key of the certificate, in PEM");
        }
    }
}

/// A space that is not a line break opportunity.
const NO_BREAK: char = '\u{a0}';

/// Column in which the descriptions begin.
const TEXT_COLUMN: usize = 19;

/// Maximum length of a line.
const WIDTH: usize = 80;

fn option(help: &mut String, head: &str, text: &str) {
    let head = format!("  {head}");
    // A long option is on a line of its own.
    let mut line = match head.len() + 2 > TEXT_COLUMN {
        true => format!("{head}\n{:TEXT_COLUMN$}", ""),
        false => format!("{head:TEXT_COLUMN$}"),
    };
    let mut column = TEXT_COLUMN;
    for (i, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if i > 0 && column + 1 + length > WIDTH {
            line.push_str(&format!("\n{:TEXT_COLUMN$}", ""));
            column = TEXT_COLUMN;
        } else if i > 0 {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        column += length;
    }
    help.push_str(&line.replace(NO_BREAK, " "));
    help.push('\n');
}
