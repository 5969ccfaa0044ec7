//! The help text, made from the same lists that are read by.

use crate::config::{FILES, FilesConfig, Key, LIMITS, LOG, STATUS, TLS, TOP};

const BEGIN: &str = "\
Serves the files of a folder over HTTP.

Usage: weft [DIR] [OPTION]...
       weft --config FILE [OPTION]...
       weft check FILE [--print]

  DIR              the folder to serve [default: ., if there is no --config and
                   no --route]
  --config FILE    do what a file says; options beside it go before what it says
  --route ROUTE    what answers for a host and a prefix: 'HOST/PREFIX -> FOLDER'
                   (files), '>> URL...' (upstreams), '=> FOLDER' (CGI) or
                   '<< URL' (a redirect); without a host for all; may be
                   repeated
";

const END: &str = "
  check FILE       say what is wrong with a configuration file, and end
  --print          and what it comes to
  -h, --help       this text
  -V, --version    the version
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
        // The key of a certificate is an option of its own.
        if key.flag == "tls-cert" {
            option(help, "--tls-key FILE", "the private key of the certificate, in PEM");
        }
    }
}

/// A space at which no line ends.
const NO_BREAK: char = '\u{a0}';

/// Where the text begins, and where it ends.
const TEXT: usize = 19;
const WIDTH: usize = 80;

fn option(help: &mut String, head: &str, text: &str) {
    let head = format!("  {head}");
    // A long head has a line to itself.
    let mut line = match head.len() + 2 > TEXT {
        true => format!("{head}\n{:TEXT$}", ""),
        false => format!("{head:TEXT$}"),
    };
    let mut column = TEXT;
    for (i, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if i > 0 && column + 1 + length > WIDTH {
            line.push_str(&format!("\n{:TEXT$}", ""));
            column = TEXT;
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
