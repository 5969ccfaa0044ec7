//! `weft man`: the manual pages weft(1) and weft.toml(5), in troff, made of the keys and commands.

use weft_config::ReferenceEntry;

use super::file_reference::parts_of_file;
use super::help::{COMMANDS, FIRST, option_groups};

/// A manual page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManualPage {
    Program,
    File,
}

impl ManualPage {
    /// Returns the page with this name.
    pub(crate) fn parse(name: &str) -> Option<ManualPage> {
        match name {
            "weft" => Some(ManualPage::Program),
            "weft.toml" => Some(ManualPage::File),
            _ => None,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            ManualPage::Program => program(),
            ManualPage::File => file(),
        }
    }
}

const SIGNALS: [(&str, &str); 5] = [
    ("SIGTERM, SIGINT", "stop; requests in progress have `drain_timeout`"),
    ("SIGQUIT", "stop when all requests in progress are complete"),
    ("SIGHUP", "reload the configuration"),
    ("SIGUSR1", "open the log files again"),
    ("SIGUSR2", "start the program from its file, and pass the sockets to it"),
];

const STATUSES: [(&str, &str); 4] = [
    ("0", "success"),
    ("1", "an error, such as an invalid file"),
    ("2", "an invalid command line"),
    (
        "3",
        "a check has found only warnings, an import has lost something, or a reload could not open \
           some sites",
    ),
];

fn program() -> String {
    let mut page = Troff::new("WEFT", 1, "weft", "web server and proxy");
    page.section("SYNOPSIS");
    for (usage, _) in COMMANDS {
        page.line(&format!(".B {}", escaped(usage)));
        page.line(".br");
    }
    page.section("COMMANDS");
    COMMANDS.iter().for_each(|(usage, meaning)| page.item(usage, meaning));
    page.section("OPTIONS");
    FIRST.iter().for_each(|(head, meaning)| page.item(head, meaning));
    for group in option_groups() {
        page.line(&format!(".SS {}", escaped(group.title)));
        group.entries.iter().for_each(|(head, meaning)| page.item(head, meaning));
    }
    page.section("SIGNALS");
    SIGNALS.iter().for_each(|(head, meaning)| page.item(head, meaning));
    page.section("EXIT STATUS");
    STATUSES.iter().for_each(|(head, meaning)| page.item(head, meaning));
    page.section("SEE ALSO");
    page.line(".BR weft.toml (5)");
    page.text
}

fn file() -> String {
    let mut page = Troff::new("WEFT.TOML", 5, "weft.toml", "configuration of weft");
    page.section("DESCRIPTION");
    page.paragraph(
        "The configuration is a file in TOML, or a folder with such files. `weft check FILE` checks \
         it, and `weft reload FILE` has a running server use it. The keys of each section follow, with \
         the types of their values.",
    );
    for (name, entries) in parts_of_file() {
        let title = if name == "the top" { "keys before all sections" } else { &name };
        page.section(&title.to_uppercase());
        entries.iter().for_each(|entry| page.key(entry));
    }
    page.section("SEE ALSO");
    page.line(".BR weft (1)");
    page.text
}

/// The source of a manual page.
struct Troff {
    text: String,
}

impl Troff {
    fn new(title: &str, section: u8, name: &str, meaning: &str) -> Troff {
        let version = env!("CARGO_PKG_VERSION");
        let name = escaped(name);
        let text = format!(
            ".TH {title} {section} \"\" \"weft {version}\"\n.SH NAME\n{name} \\- {meaning}\n"
        );
        Troff { text }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn section(&mut self, title: &str) {
        self.line(&format!(".SH {}", escaped(title)));
    }

    fn paragraph(&mut self, text: &str) {
        self.line(&escaped(text));
    }

    fn item(&mut self, head: &str, meaning: &str) {
        self.line(".TP");
        self.line(&format!(".B {}", escaped(head)));
        self.paragraph(meaning);
    }

    fn key(&mut self, entry: &ReferenceEntry) {
        let ReferenceEntry { name, option, value, default, meaning } = entry;
        let default = match &**default {
            "" => String::new(),
            default => format!(", by default {default}"),
        };
        let option = match &**option {
            "" => String::new(),
            option => format!(" ({option})"),
        };
        self.item(name, &format!("{value}{default}{option}: {meaning}"));
    }
}

/// Escapes what troff would interpret. A text is one line.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace(['\u{a0}', '\n'], " ");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_of_troff_are_escaped() {
        for (text, expected) in [
            ("a", "a"),
            ("--a-b", "\\-\\-a\\-b"),
            (".css", "\\&.css"),
            ("'a'", "\\&'a'"),
            ("a\\b\nc", "a\\eb c"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }

    #[test]
    fn pages_have_all_commands_and_keys() {
        let page = ManualPage::Program.text();
        for (usage, meaning) in COMMANDS {
            assert!(
                page.contains(&format!(".B {}\n{}\n", escaped(usage), escaped(meaning))),
                "{usage}"
            );
        }
        let page = ManualPage::File.text();
        for (_, entries) in parts_of_file() {
            for entry in entries {
                assert!(
                    page.contains(&format!("\n.B {}\n", escaped(entry.name))),
                    "{}",
                    entry.name
                );
            }
        }
    }
}
