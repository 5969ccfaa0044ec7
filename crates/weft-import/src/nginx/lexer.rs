//! Words and punctuation of nginx's configuration language, with their positions. Pure.
//!
//! The rules of nginx's parser apply: quotes are special at the beginning of a word only, a
//! backslash escapes quotes, spaces and punctuation, and `${` does not begin a block.

use std::rc::Rc;

/// Position of a word, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) file: Rc<str>,
    pub(super) line: usize,
    pub(super) column: usize,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

pub(super) struct Lexer<'a> {
    rest: std::str::Chars<'a>,
    position: Position,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(file: Rc<str>, text: &'a str) -> Lexer<'a> {
        Lexer { rest: text.chars(), position: Position { file, line: 1, column: 1 } }
    }

    /// Builds an error message with line and column.
    pub(super) fn error(&self, at: &Position, message: &str) -> String {
        format!("{}:{}:{}: {message}", at.file, at.line, at.column)
    }

    /// Returns the next token and its position.
    ///
    /// # Errors
    /// A message for a quote without its end, or for text directly behind a quote.
    pub(super) fn next(&mut self) -> Result<(Token, Position), String> {
        loop {
            let at = self.position.clone();
            let Some(c) = self.peek() else { return Ok((Token::End, at)) };
            let token = match c {
                c if c.is_ascii_whitespace() => {
                    self.bump();
                    continue;
                }
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.bump();
                    }
                    continue;
                }
                ';' => Token::Semicolon,
                '{' => Token::Open,
                '}' => Token::Close,
                '"' | '\'' => return self.quoted(c).map(|word| (Token::Word(word), at)),
                _ => return Ok((Token::Word(self.word()), at)),
            };
            self.bump();
            return Ok((token, at));
        }
    }

    /// Skips the code in the block of a directive such as `content_by_lua_block`, behind its brace.
    pub(super) fn skip_code(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.bump() {
                Some('{') => depth += 1,
                Some('}') => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        let mut is_variable = false;
        while let Some(c) = self.peek() {
            match c {
                '{' if is_variable => {}
                c if c.is_ascii_whitespace() || c == ';' || c == '{' => break,
                '\\' => {
                    self.bump();
                    self.escape(&mut word);
                    is_variable = false;
                    continue;
                }
                _ => {}
            }
            is_variable = c == '$';
            word.push(c);
            self.bump();
        }
        word
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let begin = self.position.clone();
        self.bump();
        let mut word = String::new();
        loop {
            match self.bump() {
                None => return Err(self.error(&begin, "the quote has no end")),
                Some(c) if c == quote => break,
                Some('\\') => self.escape(&mut word),
                Some(c) => word.push(c),
            }
        }
        match self.peek() {
            Some(c) if !c.is_ascii_whitespace() && !matches!(c, ';' | '{' | ')') => {
                let message = format!("expected a space or `;` behind the quote, found {c:?}");
                Err(self.error(&self.position, &message))
            }
            // In `if ($a = "b")` the parenthesis belongs to the word.
            Some(')') => Ok(word + &self.word()),
            _ => Ok(word),
        }
    }

    /// Appends the character behind a backslash, with the backslash unless it is one of nginx's
    /// escapes: regular expressions have their own.
    fn escape(&mut self, word: &mut String) {
        match self.bump() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(c) => word.extend(['\\', c]),
            None => word.push('\\'),
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        match c {
            '\n' => {
                self.position.line += 1;
                self.position.column = 1;
            }
            _ => self.position.column += 1,
        }
        Some(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<String, String> {
        let mut lexer = Lexer::new("f".into(), text);
        let mut shown = Vec::new();
        loop {
            match lexer.next()?.0 {
                Token::End => return Ok(shown.join(" ")),
                Token::Word(word) => shown.push(format!("<{}>", word.escape_debug())),
                Token::Semicolon => shown.push(";".to_owned()),
                Token::Open => shown.push("{".to_owned()),
                Token::Close => shown.push("}".to_owned()),
            }
        }
    }

    #[test]
    fn splits_words() {
        for (text, expected) in [
            ("", ""),
            ("a b;c{d;}", "<a> <b> ; <c> { <d> ; }"),
            ("# a\nb # c\n;", "<b> ;"),
            ("a#b c;", "<a#b> <c> ;"),
            ("a \"b c;{}\" 'd \"e\"';", "<a> <b c;{}> <d \\\"e\\\"> ;"),
            ("a b\"c\" d;", "<a> <b\\\"c\\\"> <d> ;"),
            ("a ${b}c $d{", "<a> <${b}c> <$d> {"),
            (r"~ \.php$ {", r"<~> <\\.php$> {"),
            (r#"a "\"b\\ \n\." \;c;"#, r#"<a> <\"b\\ \n\\.> <\\;c> ;"#),
            ("if ($a = \"b\") {", "<if> <($a> <=> <b)> {"),
        ] {
            assert_eq!(tokens(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn reports_invalid_quotes() {
        assert_eq!(tokens("a\n \"b"), Err("f:2:2: the quote has no end".to_owned()));
        let message = "f:1:6: expected a space or `;` behind the quote, found 'c'";
        assert_eq!(tokens("a \"b\"c;"), Err(message.to_owned()));
    }

    #[test]
    fn skips_code_with_braces() {
        let mut lexer = Lexer::new("f".into(), " if x then y = { } end }\nb;");
        lexer.skip_code();
        assert_eq!(lexer.next().unwrap().0, Token::Word("b".to_owned()));
    }
}
