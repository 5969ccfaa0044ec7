//! `weft completions`: scripts that complete command lines in a shell, made of the commands and
//! keys.

use super::help::{COMMANDS, FIRST, option_groups};

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// An option without its dashes, and its meaning.
struct Completion {
    name: String,
    meaning: String,
    has_argument: bool,
}

impl Shell {
    /// Returns the shell with this name.
    pub(crate) fn parse(name: &str) -> Option<Shell> {
        match name {
            "bash" => Some(Shell::Bash),
            "zsh" => Some(Shell::Zsh),
            "fish" => Some(Shell::Fish),
            _ => None,
        }
    }

    /// Returns the script.
    pub(crate) fn script(self) -> String {
        match self {
            Shell::Bash => bash(),
            Shell::Zsh => zsh(),
            Shell::Fish => fish(),
        }
    }
}

/// Returns the commands that are words, each with its first meaning.
fn commands() -> Vec<(&'static str, &'static str)> {
    let word = |usage: &'static str| {
        usage.split(' ').nth(1).filter(|it| it.starts_with(char::is_lowercase))
    };
    let all = COMMANDS.iter().filter_map(|(usage, meaning)| Some((word(usage)?, *meaning)));
    let mut commands: Vec<_> = all.collect();
    commands.dedup_by_key(|(name, _)| *name);
    commands
}

/// Returns the long options.
fn options() -> Vec<Completion> {
    let groups = option_groups().into_iter().flat_map(|group| group.entries);
    let first = FIRST.iter().map(|(head, meaning)| ((*head).to_owned(), (*meaning).to_owned()));
    let mut options = Vec::<Completion>::new();
    for (head, meaning) in first.chain(groups) {
        for part in head.split(", ") {
            let Some(name) = part.strip_prefix("--") else { continue };
            let (name, argument) = name.split_once(' ').unwrap_or((name, ""));
            if options.iter().all(|known| known.name != name) {
                let (name, meaning) = (name.to_owned(), meaning.replace('\u{a0}', " "));
                options.push(Completion { name, meaning, has_argument: !argument.is_empty() });
            }
        }
    }
    options
}

fn bash() -> String {
    let options: Vec<String> =
        options().iter().map(|option| format!("--{}", option.name)).collect();
    let commands: Vec<&str> = commands().iter().map(|(name, _)| *name).collect();
    format!(
        "# weft completions bash\n\
         _weft() {{\n  local word=${{COMP_WORDS[COMP_CWORD]}}\n  COMPREPLY=()\n  case $word in\n    \
         -*) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\") ;;\n    \
         *) [ \"$COMP_CWORD\" != 1 ] || mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\") ;;\n  \
         esac\n}}\ncomplete -o bashdefault -o default -F _weft weft\n",
        options.join(" "),
        commands.join(" "),
    )
}

fn zsh() -> String {
    let quoted = |text: &str| text.replace('\'', "'\\''");
    let described = |text: &str| quoted(text).replace(['[', ']'], " ").replace(':', "\\:");
    let options = options().into_iter().map(|Completion { name, meaning, has_argument }| {
        let argument = if has_argument { ":value:_files" } else { "" };
        format!("    '--{name}[{}]{argument}' \\\n", described(&meaning))
    });
    let commands = commands()
        .into_iter()
        .map(|(name, meaning)| format!("    '{name}:{}'\n", quoted(meaning).replace(':', "\\:")));
    format!(
        "#compdef weft\n# weft completions zsh\n_weft_first() {{\n  local -a commands=(\n{}  )\n  \
         _describe command commands\n  _files\n}}\n_weft() {{\n  _arguments \\\n{}    '1: :_weft_first' '*:file:_files'\n}}\n\
         [ \"$funcstack[1]\" = _weft ] && _weft \"$@\" || compdef _weft weft\n",
        commands.collect::<String>(),
        options.collect::<String>(),
    )
}

fn fish() -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('\'', "\\'");
    let mut script = "# weft completions fish\n".to_owned();
    for (name, meaning) in commands() {
        let meaning = quoted(meaning);
        script.push_str(&format!(
            "complete -c weft -n __fish_use_subcommand -a {name} -d '{meaning}'\n"
        ));
    }
    for Completion { name, meaning, has_argument } in options() {
        let (argument, meaning) = (if has_argument { " -r" } else { "" }, quoted(&meaning));
        script.push_str(&format!("complete -c weft -l {name}{argument} -d '{meaning}'\n"));
    }
    script
}
