//! Comparison of a response with its description.

use super::client::Received;

/// Compares a response with its description: a status line, lines of fields, an empty line, and
/// the content.
///
/// `name: value` must be a field of the response, `name: *` with any value, and `- name` must not
/// be one. A field that occurs twice is listed twice, in the same order. Without an empty line the
/// content may be anything. Within the content, a line `...` stands for any text, and a backslash
/// at the end of a line removes the end of the line.
pub fn matches(received: &Received, expected: &str) -> Result<(), String> {
    let (head, content) = match expected.split_once("\n\n") {
        Some((head, content)) => (head, Some(content.replace("\\\n", ""))),
        None => (expected, None),
    };
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if received.status_line != status {
        return Err(format!("expected {status:?}\n{received}"));
    }
    let lines: Vec<&str> = lines.collect();
    for line in &lines {
        let (name, is_expected) = match line.strip_prefix("- ") {
            Some(name) => (name, false),
            None => (line.split_once(": ").expect("a field line").0, true),
        };
        let prefix = format!("{name}: ");
        let values = lines.iter().filter_map(|line| line.strip_prefix(&prefix));
        let values: Vec<&str> = values.filter(|_| is_expected).collect();
        let found = received.values(name);
        let is_equal = |(value, found): (&&str, &&str)| *value == "*" || value == found;
        if values.len() != found.len() || !values.iter().zip(&found).all(is_equal) {
            return Err(format!("expected {line:?}\n{received}"));
        }
    }
    match content {
        Some(content) if !has_pieces(&received.text(), &content) => {
            Err(format!("expected the content {content:?}\n{received}"))
        }
        _ => Ok(()),
    }
}

/// Returns true if the text is the pattern, where a line `...` stands for any text.
fn has_pieces(text: &str, pattern: &str) -> bool {
    let Some((first, pieces)) = pattern.split_once("...\n") else { return text == pattern };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let (middle, last) = pieces.rsplit_once("...\n").unwrap_or(("", pieces));
    for piece in middle.split("...\n") {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn patterns_have_gaps() {
    for (text, pattern, expected) in [
        ("a\n", "a\n", true),
        ("a\nb\n", "a\n", false),
        ("a\nb\n", "a\n...\n", true),
        ("a\nb\nc\n", "a\n...\nc\n", true),
        ("a\nb\nc\n", "...\nb\n...\n", true),
        ("a\nc\n", "...\nb\n...\n", false),
        ("a\nb\nd\n", "a\n...\nc\n", false),
    ] {
        assert_eq!(has_pieces(text, pattern), expected, "{text:?} {pattern:?}");
    }
}
