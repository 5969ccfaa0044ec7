//! The `Content-Disposition` of a part (RFC 7578 §4.2), and safe file names. Pure.

use std::borrow::Cow;

use crate::error::{Error, Result};
use weft_proto::semantics::path;

/// The names in a `Content-Disposition: form-data`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disposition {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
}

impl Disposition {
    /// Parses a field value. Invalid UTF-8 is replaced by U+FFFD.
    pub(super) fn parse(value: &[u8]) -> Result<Disposition> {
        let end = value.iter().position(|&b| b == b';').unwrap_or(value.len());
        let (kind, mut rest) = value.split_at(end);
        if !kind.trim_ascii().eq_ignore_ascii_case(b"form-data") {
            return Err(Error::malformed("the Content-Disposition of a part is not form-data"));
        }
        let (mut name, mut file_name, mut extended) = (None, None, None);
        while let Some((parameter, remaining)) = next_parameter(rest)? {
            rest = remaining;
            let slot = match parameter.name {
                b if b.eq_ignore_ascii_case(b"name") => &mut name,
                b if b.eq_ignore_ascii_case(b"filename") => &mut file_name,
                b if b.eq_ignore_ascii_case(b"filename*") => &mut extended,
                _ => continue,
            };
            if slot.replace(parameter.value).is_some() {
                return Err(Error::malformed("a part of the form has a duplicate name"));
            }
        }
        let name = name.ok_or_else(|| Error::malformed("a part of the form has no name"))?;
        let extended = extended.as_deref().map(decode_extended).transpose()?;
        Ok(Disposition {
            name: text(&name),
            file_name: file_name.map(|name| text(&name)).or(extended),
        })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Decodes `UTF-8'language'percent-encoded` (RFC 8187 §3.2). RFC 7578 forbids it in forms,
/// but where it is the only file name it still marks the part as a file.
fn decode_extended(value: &[u8]) -> Result<String> {
    let mut parts = value.splitn(3, |&b| b == b'\'');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(charset), Some(_), Some(name)) if charset.eq_ignore_ascii_case(b"utf-8") => {
            Ok(text(&path::decode(name)))
        }
        _ => Err(Error::malformed("the filename* of a part is not in UTF-8")),
    }
}

/// A parameter: `name=value` or `name="value"`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameter<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: Cow<'a, [u8]>,
}

/// Parses the first of the parameters after a value, each preceded by a semicolon. Returns it and
/// the rest.
pub(super) fn next_parameter(text: &[u8]) -> Result<Option<(Parameter<'_>, &[u8])>> {
    let invalid = || Error::malformed("a form has malformed header parameters");
    let mut text = text.trim_ascii_start();
    while let Some(rest) = text.strip_prefix(b";") {
        text = rest.trim_ascii_start();
    }
    if text.is_empty() {
        return Ok(None);
    }
    let equals = text.iter().position(|&b| b == b'=').ok_or_else(invalid)?;
    let name = text[..equals].trim_ascii_end();
    let is_token = |b: &u8| b.is_ascii_graphic() && !b"\";,/()<>@:[]?{}\\".contains(b);
    if name.is_empty() || !name.iter().all(is_token) {
        return Err(invalid());
    }
    let value = text[equals + 1..].trim_ascii_start();
    let (value, rest) = match value.strip_prefix(b"\"") {
        Some(quoted) => unquote(quoted).ok_or_else(invalid)?,
        None => {
            let end = value.iter().position(|&b| b == b';').unwrap_or(value.len());
            (Cow::Borrowed(value[..end].trim_ascii_end()), &value[end..])
        }
    };
    match rest.trim_ascii_start() {
        rest @ ([] | [b';', ..]) => Ok(Some((Parameter { name, value }, rest))),
        _ => Err(invalid()),
    }
}

/// Parses a quoted string up to its closing quote. Returns it and the rest. A backslash escapes
/// only a quote or another backslash, because some clients send Windows paths unescaped.
fn unquote(quoted: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let mut value = Vec::new();
    let mut rest = quoted;
    loop {
        match rest {
            [b'\\', b @ (b'"' | b'\\'), tail @ ..] => {
                value.push(*b);
                rest = tail;
            }
            [b'"', tail @ ..] => return Some((value.into(), tail)),
            [b, tail @ ..] => {
                value.push(*b);
                rest = tail;
            }
            [] => return None,
        }
    }
}

/// Maximum length of a file name on Linux file systems, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Returns the last component of a path, with `/` or `\` as separator, as a safe file name: without
/// control characters and characters forbidden on Windows, without dots and spaces at either end.
/// `None` if nothing is left.
pub(super) fn sanitize_file_name(path: &str) -> Option<String> {
    let base = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_forbidden =
        |c: char| c.is_control() || "\u{fffd}:*?\"<>|".contains(c) || is_invisible(c);
    let clean: String = base.chars().filter(|&c| !is_forbidden(c)).collect();
    let is_edge = |c: char| c == '.' || c.is_whitespace();
    let clean = clean.trim_matches(is_edge);
    let end = (0..=MAX_NAME_BYTES).rev().find(|&end| clean.is_char_boundary(end))?;
    let clean = &clean[..end];
    Some(clean.trim_end_matches(is_edge).to_owned()).filter(|name| !name.is_empty())
}

/// Invisible characters that change the display of a name; one of them reverses `exe.txt`.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_content_dispositions() {
        for (value, expected) in [
            (r#"form-data; name="a""#, Some(("a", None))),
            (r#"Form-Data ;NAME = a ; x=y"#, Some(("a", None))),
            (r#"form-data; name="a"; filename="b c.txt""#, Some(("a", Some("b c.txt")))),
            (r#"form-data; filename="b"; name="a";"#, Some(("a", Some("b")))),
            (r#"form-data; name=""; filename="""#, Some(("", Some("")))),
            (r#"form-data; name="días"; filename="日本.txt""#, Some(("días", Some("日本.txt")))),
            // Quoting by curl, browsers and Windows clients.
            (r#"form-data; name="a"; filename="x\"y""#, Some(("a", Some(r#"x"y"#)))),
            (r#"form-data; name="a"; filename="x%22y""#, Some(("a", Some("x%22y")))),
            (r#"form-data; name="a"; filename="C:\dir\f.txt""#, Some(("a", Some(r"C:\dir\f.txt")))),
            (r#"form-data; name="a"; filename="C:\\f""#, Some(("a", Some(r"C:\f")))),
            // A parameter inside a quoted name is not a parameter.
            (r#"form-data; filename="; name=x"; name="a""#, Some(("a", Some("; name=x")))),
            (r#"form-data; name="a"; filename*=UTF-8''d%C3%ADas"#, Some(("a", Some("días")))),
            (r#"form-data; filename*=utf-8'es'x; filename=y; name=a"#, Some(("a", Some("y")))),
            (r#"form-data; name="a"; filename*=latin1''x"#, None),
            (r#"form-data; name="a"; filename*=x"#, None),
            ("form-data", None),
            ("form-data; filename=a", None),
            ("attachment; name=a", None),
            (r#"form-data; name="a"#, None),
            (r#"form-data; name="a\""#, None),
            (r#"form-data; name="a" b"#, None),
            ("form-data; name=a; name=b", None),
            ("form-data; name=a; filename=b; filename=c", None),
            ("form-data; name", None),
            ("form-data; =a", None),
            ("form-data; na\"me=a", None),
            ("", None),
        ] {
            let found = Disposition::parse(value.as_bytes()).ok();
            let found = found.as_ref().map(|d| (d.name.as_str(), d.file_name.as_deref()));
            assert_eq!(found, expected, "{value}");
        }
        let found = Disposition::parse(b"form-data; name=a; filename=\"\xff\"").unwrap();
        assert_eq!(found.file_name.as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn sanitizes_file_names() {
        for (path, expected) in [
            ("a.txt", Some("a.txt")),
            ("días y más.txt", Some("días y más.txt")),
            ("../../x", Some("x")),
            ("..\\..\\x", Some("x")),
            ("C:\\dir\\a.txt", Some("a.txt")),
            ("/etc/passwd", Some("passwd")),
            ("x/", None),
            ("..", None),
            (".", None),
            ("", None),
            (" . . ", None),
            (".htaccess", Some("htaccess")),
            ("a.txt. .", Some("a.txt")),
            ("a\0b\r\nc\u{7f}", Some("abc")),
            ("a:b|c?", Some("abc")),
            ("x\u{202e}txt.exe", Some("xtxt.exe")),
            ("%2e%2e%2fx", Some("%2e%2e%2fx")),
        ] {
            assert_eq!(sanitize_file_name(path).as_deref(), expected, "{path:?}");
        }
        assert_eq!(sanitize_file_name(&"x".repeat(300)).unwrap().len(), 255);
        assert_eq!(sanitize_file_name(&"í".repeat(300)).unwrap(), "í".repeat(127));
    }
}
