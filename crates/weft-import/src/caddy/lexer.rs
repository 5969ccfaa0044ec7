//! Words of a Caddyfile. Pure.

/// A word, and the place where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
    /// The word is the first of its line.
    pub(super) starts_line: bool,
    pub(super) is_quoted: bool,
}

impl Token {
    /// Returns true for a brace that opens or closes a block.
    pub(super) fn is(&self, brace: &str) -> bool {
        !self.is_quoted && self.text == brace
    }
}

/// Replaces `{$NAME}` and `{$NAME:default}`, as Caddy does before it splits the text.
///
/// # Errors
/// The name of a variable without a value and without a default.
pub(super) fn with_variables(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("{$") {
        let Some(length) = rest[at..].find('}') else { break };
        let inner = &rest[at + 2..at + length];
        let (name, default) = match inner.split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        out.push_str(&rest[..at]);
        let value = variable(name).or_else(|| default.map(str::to_owned));
        out.push_str(&value.ok_or_else(|| name.to_owned())?);
        rest = &rest[at + length + 1..];
    }
    Ok(out + rest)
}

/// Splits a text into words.
///
/// # Errors
/// The line of a quote or a heredoc that does not end.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, (usize, &'static str)> {
    let mut lexer = Lexer { rest: text, line: 1, starts_line: true, tokens: Vec::new() };
    lexer.run()?;
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    starts_line: bool,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn run(&mut self) -> Result<(), (usize, &'static str)> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\n' => {
                    self.starts_line = true;
                    self.advance(1);
                }
                '\\' if self.rest.starts_with("\\\n") => self.advance(2),
                '\\' if self.rest.starts_with("\\\r\n") => self.advance(3),
                c if c.is_whitespace() || c == '\u{feff}' => self.advance(c.len_utf8()),
                '#' => self.advance(self.rest.find('\n').unwrap_or(self.rest.len())),
                '"' | '`' => self.quoted(c)?,
                '<' if heredoc_marker(self.rest).is_some() => self.heredoc()?,
                _ => self.word(),
            }
        }
        Ok(())
    }

    fn advance(&mut self, bytes: usize) {
        self.line += self.rest[..bytes].matches('\n').count();
        self.rest = &self.rest[bytes..];
    }

    fn push(&mut self, text: String, line: usize, is_quoted: bool) {
        let starts_line = std::mem::take(&mut self.starts_line);
        self.tokens.push(Token { text, line, starts_line, is_quoted });
    }

    fn word(&mut self) {
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        // A backslash in front of the line end continues the line.
        let text = match self.rest[end..].starts_with(['\n', '\r']) {
            true => self.rest[..end].strip_suffix('\\'),
            false => None,
        };
        let word = text.unwrap_or(&self.rest[..end]).to_owned();
        let line = self.line;
        self.advance(word.len());
        self.push(word, line, false);
    }

    fn quoted(&mut self, quote: char) -> Result<(), (usize, &'static str)> {
        let line = self.line;
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' if quote == '"' && self.rest[at + 1..].starts_with('"') => {
                    chars.next();
                    text.push('"');
                }
                c if c == quote => {
                    self.advance(at + 1);
                    self.push(text, line, true);
                    return Ok(());
                }
                c => text.push(c),
            }
        }
        Err((line, "the quote does not end"))
    }

    /// Reads `<<MARKER` up to a line with the marker, without the indentation of that line.
    fn heredoc(&mut self) -> Result<(), (usize, &'static str)> {
        let line = self.line;
        let marker = heredoc_marker(self.rest).unwrap_or_default().to_owned();
        let begin = self.rest.find('\n').map_or(self.rest.len(), |at| at + 1);
        let mut lines = Vec::new();
        let mut at = begin;
        for text in self.rest[begin..].split_inclusive('\n') {
            let whole = text.trim_end_matches(['\n', '\r']);
            let inner = whole.trim_start();
            let behind = inner.strip_prefix(&*marker);
            if behind.is_some_and(|it| it.is_empty() || it.starts_with(char::is_whitespace)) {
                let indent = &whole[..whole.len() - inner.len()];
                let inner = lines.iter().map(|it: &&str| it.strip_prefix(indent).unwrap_or(it));
                let content = inner.collect::<Vec<_>>().join("\n");
                self.advance(at + indent.len() + marker.len());
                self.push(content, line, true);
                return Ok(());
            }
            lines.push(whole);
            at += text.len();
        }
        Err((line, "the heredoc does not end"))
    }
}

/// Returns the marker if a heredoc begins here.
fn heredoc_marker(text: &str) -> Option<&str> {
    let behind = text.strip_prefix("<<")?;
    let marker = behind[..behind.find('\n')?].trim_end();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (!marker.is_empty() && marker.chars().all(is_name)).then_some(marker)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(String, bool)> {
        tokens(text).unwrap().into_iter().map(|it| (it.text, it.starts_line)).collect()
    }

    #[test]
    fn splits_words_quotes_and_heredocs() {
        let word = |text: &str, starts: bool| (text.to_owned(), starts);
        for (text, expected) in [
            ("a b\nc", vec![word("a", true), word("b", false), word("c", true)]),
            ("a # b\n#c\nd#e", vec![word("a", true), word("d#e", true)]),
            (
                "a \"b \\\"c\\\"\nd\" e",
                vec![word("a", true), word("b \"c\"\nd", false), word("e", false)],
            ),
            ("a `b \\\" \"`", vec![word("a", true), word("b \\\" \"", false)]),
            ("a \\\n  b", vec![word("a", true), word("b", false)]),
            (
                "a {x} {\n}",
                vec![word("a", true), word("{x}", false), word("{", false), word("}", true)],
            ),
            (
                "respond <<HTML\n  <p>\n    x\n  HTML 200\nb",
                vec![
                    word("respond", true),
                    word("<p>\n  x", false),
                    word("200", false),
                    word("b", true),
                ],
            ),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
        assert_eq!(tokens("a <<B\nc"), Err((1, "the heredoc does not end")));
        assert_eq!(tokens("a\n\"b"), Err((2, "the quote does not end")));
    }

    #[test]
    fn replaces_variables() {
        let known = |name: &str| (name == "A").then(|| "1 2".to_owned());
        let replaced = |text: &str| with_variables(text, &known);
        assert_eq!(replaced("x {$A} {$B:c:d} {path}"), Ok("x 1 2 c:d {path}".to_owned()));
        assert_eq!(replaced("{$B:}"), Ok(String::new()));
        assert_eq!(replaced("{$B}"), Err("B".to_owned()));
    }
}
