//! Tokens of Rust source text. Comments are no tokens.

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// First line, from 0.
    pub line: usize,
    /// Last line: the text of a string may have several.
    pub last_line: usize,
    /// Identifier, keyword or character of punctuation; empty for a literal and for a lifetime.
    pub text: String,
}

impl Token {
    /// Returns true if the token is an identifier or a keyword.
    pub fn is_word(&self) -> bool {
        self.text.starts_with(is_word)
    }
}

/// Splits source text into tokens.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut scanner = Scanner { rest: text, line: 0 };
    std::iter::from_fn(|| scanner.next()).collect()
}

struct Scanner<'a> {
    rest: &'a str,
    line: usize,
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<Token> {
        self.skip_space_and_comments();
        let line = self.line;
        let mut text = String::new();
        let first = self.rest.chars().next()?;
        if let Some(len) = string_len(self.rest) {
            self.advance(len);
        } else if first == '\'' {
            self.advance(quote_len(self.rest));
        } else if is_word(first) {
            let name = self.rest.strip_prefix("r#").unwrap_or(self.rest);
            let len = name.find(|c| !is_word(c)).unwrap_or(name.len());
            // A number is a literal, and its digits are no path.
            if !first.is_ascii_digit() {
                text = name[..len].to_owned();
            }
            self.advance(self.rest.len() - name.len() + len);
        } else {
            text = first.to_string();
            self.advance(first.len_utf8());
        }
        Some(Token { line, last_line: self.line, text })
    }

    fn skip_space_and_comments(&mut self) {
        loop {
            let rest = self.rest;
            let len = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                block_comment_len(rest)
            } else {
                rest.len() - rest.trim_start().len()
            };
            if len == 0 {
                return;
            }
            self.advance(len);
        }
    }

    fn advance(&mut self, len: usize) {
        let (passed, rest) = self.rest.split_at(len);
        self.line += passed.matches('\n').count();
        self.rest = rest;
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of a block comment, which may contain others.
fn block_comment_len(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the length of the string literal at the start of a text, if there is one.
fn string_len(text: &str) -> Option<usize> {
    let after_prefix = text.trim_start_matches(['b', 'c', 'r']);
    let prefix = &text[..text.len() - after_prefix.len()];
    if prefix == "b" && after_prefix.starts_with('\'') {
        return Some(1 + quote_len(after_prefix));
    }
    if !["", "b", "c", "r", "br", "cr"].contains(&prefix) {
        return None;
    }
    if prefix.ends_with('r') {
        let hashes = after_prefix.len() - after_prefix.trim_start_matches('#').len();
        let contents = after_prefix[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(text.len() - contents.len() + contents.find(&end)? + end.len());
    }
    let contents = after_prefix.strip_prefix('"')?;
    Some(text.len() - contents.len() + end_of_quoted(contents, b'"'))
}

/// Returns the length of the character literal or lifetime at the start of a text.
fn quote_len(text: &str) -> usize {
    let mut following = text.chars().skip(1);
    match (following.next(), following.next()) {
        (Some(c), next) if is_word(c) && next != Some('\'') => {
            1 + c.len_utf8() + {
                let rest = &text[1 + c.len_utf8()..];
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            }
        }
        _ => 1 + end_of_quoted(&text[1..], b'\''),
    }
}

/// Returns the position after the closing quote of an escaped text.
fn end_of_quoted(text: &str, quote: u8) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_no_words() {
        let text = "fn a<'b>(c: &'b str) { // not::this\n /* nor /* this */ */ x(\"crate::d \\\" e\", \
                    'f', '\\'', b'\"', r#\"g\"h\"#, 0x1f_u8, br\"i\") } r#type";
        let tokens = tokens(text);
        let words = tokens.iter().filter(|it| it.is_word()).map(|it| &*it.text);
        assert_eq!(words.collect::<Vec<_>>(), ["fn", "a", "c", "str", "x", "type"]);
    }

    #[test]
    fn tokens_have_their_lines() {
        let lines = tokens("a\n\"b\nc\"\n// d\ne")
            .iter()
            .map(|it| (it.line, it.last_line))
            .collect::<Vec<_>>();
        assert_eq!(lines, [(0, 0), (1, 2), (4, 4)]);
    }
}
