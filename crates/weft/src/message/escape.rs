//! Escaping of file names for links, HTML and JSON. Pure.
//!
//! A name is a string of bytes that an attacker may have chosen. A link keeps every byte. In HTML
//! the name is text that cannot end an element or change the direction of the text beside it.

use std::fmt::{self, Display, Formatter, Write};

/// A name as a path segment of a URI reference: all bytes except the unreserved ones (RFC 3986
/// §2.3) are percent-encoded. The reference needs a `./` in front, because the name alone could
/// begin with a scheme such as `javascript:`.
pub(crate) struct Href<'a>(pub(crate) &'a [u8]);

impl Display for Href<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                f.write_char(b.into())
            }
            _ => write!(f, "%{b:02X}"),
        })
    }
}

/// A name as HTML text or as a quoted attribute value.
///
/// Invalid UTF-8 becomes U+FFFD. Control characters become visible: ASCII controls as control
/// pictures, and directional formatting characters as U+FFFD, since a character that is not closed
/// affects text outside of its `<bdi>`. The marks U+200E and U+200F, which names in right-to-left
/// scripts may need, have no such effect and are kept.
pub(crate) struct Html<'a>(pub(crate) &'a [u8]);

impl Display for Html<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self.0).chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            '\0'..='\x1f' => f.write_char(CONTROL_PICTURES[c as usize]),
            '\x7f' => f.write_char('␡'),
            '\u{80}'..='\u{9f}' => f.write_char(char::REPLACEMENT_CHARACTER),
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                f.write_char(char::REPLACEMENT_CHARACTER)
            }
            c => f.write_char(c),
        })
    }
}

const CONTROL_PICTURES: [char; 32] = [
    '␀', '␁', '␂', '␃', '␄', '␅', '␆', '␇', '␈', '␉', '␊', '␋', '␌', '␍', '␎', '␏', //
    '␐', '␑', '␒', '␓', '␔', '␕', '␖', '␗', '␘', '␙', '␚', '␛', '␜', '␝', '␞', '␟',
];

/// A name as a JSON string (RFC 8259 §7), with its quotes. The name is unchanged, except that
/// invalid UTF-8 becomes U+FFFD. All control characters are escaped, so that none reaches a
/// terminal, and so are U+2028 and U+2029, which are line terminators in old JavaScript.
pub(crate) struct Json<'a>(pub(crate) &'a [u8]);

impl Display for Json<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        String::from_utf8_lossy(self.0).chars().try_for_each(|c| match c {
            '"' => f.write_str("\\\""),
            '\\' => f.write_str("\\\\"),
            '\u{2028}' | '\u{2029}' => write!(f, "\\u{:04x}", u32::from(c)),
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c)),
            c => f.write_char(c),
        })?;
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, link, HTML text, JSON.
    const NAMES: &[(&[u8], &str, &str, &str)] = &[
        (b"a-b_c.d~e", "a-b_c.d~e", "a-b_c.d~e", r#""a-b_c.d~e""#),
        (b"a b+c", "a%20b%2Bc", "a b+c", r#""a b+c""#),
        (b"-rf", "-rf", "-rf", r#""-rf""#),
        (b"%2e%2e", "%252e%252e", "%2e%2e", r#""%2e%2e""#),
        (b"?a#b&c;d", "%3Fa%23b%26c%3Bd", "?a#b&amp;c;d", r#""?a#b&c;d""#),
        (b"javascript:x", "javascript%3Ax", "javascript:x", r#""javascript:x""#),
        (
            b"<img onerror=x>",
            "%3Cimg%20onerror%3Dx%3E",
            "&lt;img onerror=x&gt;",
            r#""<img onerror=x>""#,
        ),
        (b"\"'", "%22%27", "&quot;&#39;", r#""\"'""#),
        (b"\\n", "%5Cn", "\\n", r#""\\n""#),
        (b"a\nb\t\x1b[0m", "a%0Ab%09%1B%5B0m", "a␊b␉␛[0m", r#""a\u000ab\u0009\u001b[0m""#),
        (b"\x7f", "%7F", "␡", r#""\u007f""#),
        ("\u{85}".as_bytes(), "%C2%85", "\u{fffd}", r#""\u0085""#),
        ("días 日本".as_bytes(), "d%C3%ADas%20%E6%97%A5%E6%9C%AC", "días 日本", r#""días 日本""#),
        ("👩‍🚀".as_bytes(), "%F0%9F%91%A9%E2%80%8D%F0%9F%9A%80", "👩‍🚀", r#""👩‍🚀""#),
        (b"a\xff\xc3", "a%FF%C3", "a\u{fffd}\u{fffd}", "\"a\u{fffd}\u{fffd}\""),
        (
            "x\u{202e}gpj.exe".as_bytes(),
            "x%E2%80%AEgpj.exe",
            "x\u{fffd}gpj.exe",
            "\"x\u{202e}gpj.exe\"",
        ),
        ("\u{2066}\u{2069}".as_bytes(), "%E2%81%A6%E2%81%A9", "��", "\"\u{2066}\u{2069}\""),
        ("\u{2028}\u{2029}".as_bytes(), "%E2%80%A8%E2%80%A9", "��", r#""\u2028\u2029""#),
    ];

    #[test]
    fn escapes_names_for_links_html_and_json() {
        for &(name, href, html, json) in NAMES {
            let case = String::from_utf8_lossy(name);
            assert_eq!(Href(name).to_string(), href, "{case:?}");
            assert_eq!(Html(name).to_string(), html, "{case:?}");
            assert_eq!(Json(name).to_string(), json, "{case:?}");
        }
    }

    #[test]
    fn a_link_keeps_every_byte() {
        let name: Vec<u8> = (0..=255).collect();
        assert_eq!(*weft_proto::semantics::path::decode(Href(&name).to_string().as_bytes()), name);
    }

    #[test]
    fn json_keeps_every_character() {
        let name: String = ('\0'..=char::MAX).collect();
        let json = Json(name.as_bytes()).to_string();
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), name);
    }
}
