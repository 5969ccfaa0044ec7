//! The head of a script's response (RFC 3875 §6): bytes → status and fields. Pure.

use weft::{HeaderName, HeaderValue, Response, StatusCode};

/// What a script says before its body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    /// The length of the body, if the script tells it.
    pub(super) length: Option<u64>,
    /// Those that the client gets, but for `Content-Length`.
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
}

/// Fields that are about a connection (RFC 9110 §7.6.1): the engine has its own.
pub(super) const OF_THE_CONNECTION: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The head at the start of some output, and how many bytes it has, which may be so many. `None`
/// if it is not complete; an error says what is wrong with it.
pub(super) fn parse(output: &[u8], most_bytes: usize) -> Result<Option<(Head, usize)>, String> {
    let end = end(output);
    if end.unwrap_or(output.len()) > most_bytes {
        return Err("its head is larger than allowed".to_owned());
    }
    let Some(end) = end else { return Ok(None) };
    let mut said = Said::default();
    for line in output[..end].split(|&b| b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.is_empty() {
            said.read(line)?;
        }
    }
    Ok(Some((said.into_head()?, end)))
}

/// Where the empty line ends. Lines end in LF or CRLF, as the script likes (§6.2).
fn end(output: &[u8]) -> Option<usize> {
    let mut start = 0;
    loop {
        let line = output[start..].iter().position(|&b| b == b'\n')?;
        let is_empty = matches!(&output[start..start + line], b"" | b"\r");
        start += line + 1;
        if is_empty {
            return Some(start);
        }
    }
}

#[derive(Default)]
struct Said {
    status: Option<StatusCode>,
    length: Option<u64>,
    has_type: bool,
    has_location: bool,
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl Said {
    fn read(&mut self, line: &[u8]) -> Result<(), String> {
        let wrong =
            |what: &str| Err(format!("{what}: {}", line[..line.len().min(80)].escape_ascii()));
        if line.starts_with(b"HTTP/") {
            return wrong("it speaks HTTP itself (`nph-`), which is not supported");
        }
        let Some(colon) = line.iter().position(|&b| b == b':') else {
            return wrong("a line of its head has no colon");
        };
        let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(&line[..colon]),
            HeaderValue::from_bytes(line[colon + 1..].trim_ascii()),
        ) else {
            return wrong("a line of its head is no field");
        };
        match name.as_str() {
            "status" => match (self.status, status(value.as_bytes())) {
                (None, Some(status)) => self.status = Some(status),
                (None, None) => return wrong("no status that a response can have"),
                (Some(_), _) => return wrong("a second status"),
            },
            "content-length" => match (self.length, value.to_str().unwrap_or_default().parse()) {
                (None, Ok(length)) => self.length = Some(length),
                _ => return wrong("no length, or a second one"),
            },
            "content-type" if self.has_type => return wrong("a second type"),
            "location" if self.has_location => return wrong("a second location"),
            name if OF_THE_CONNECTION.contains(&name) => {}
            _ => {
                self.has_type |= name.as_str() == "content-type";
                self.has_location |= name.as_str() == "location";
                self.fields.push((name, value));
            }
        }
        Ok(())
    }

    fn into_head(self) -> Result<Head, String> {
        let Said { status, length, has_type, has_location, fields } = self;
        // §6.2.2 has the server answer a path itself, in the script's place. A redirect leads to
        // the same page, and relative links in that to where it expects them.
        let status = match status {
            Some(status) => status,
            None if has_location => StatusCode::FOUND,
            None if has_type => StatusCode::OK,
            None => {
                let message = "its head has neither Content-Type nor Location nor Status";
                return Err(message.to_owned());
            }
        };
        Ok(Head { status, length, fields })
    }
}

/// `404 Not Found`: three digits, and a reason that clients do not see (§6.3.3).
fn status(value: &[u8]) -> Option<StatusCode> {
    let (digits, reason) = value.split_at_checked(3)?;
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let is_final = matches!(number, 200..=599);
    let is_sound = is_number && is_final && matches!(reason, [] | [b' ', ..]);
    is_sound.then(|| StatusCode::from_u16(number).ok()).flatten()
}

impl Head {
    /// Whether a body follows, whatever the method of the request was (RFC 9110 §6.4.1).
    pub(super) fn has_body(&self) -> bool {
        !matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }

    /// Adds status and fields to a response that has the body.
    pub(super) fn onto(self, response: Response) -> Response {
        let mut response = response.with_status(self.status);
        // RFC 9110 §8.6: a 204 has none.
        if let Some(length) = self.length.filter(|_| self.status != StatusCode::NO_CONTENT) {
            response.set_header(weft::header::CONTENT_LENGTH, length.to_string());
        }
        for (name, value) in self.fields {
            response = response.with_header(name, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status, the length, the fields and the rest of some output, or what is wrong.
    fn read(output: &[u8]) -> String {
        match parse(output, 100) {
            Ok(None) => "more".to_owned(),
            Err(wrong) => wrong,
            Ok(Some((Head { status, length, fields }, end))) => {
                let length = length.map_or(String::new(), |length| format!(" {length}"));
                let fields = fields.iter().map(|(n, v)| format!(" {n}={}", v.to_str().unwrap()));
                let fields = fields.collect::<String>();
                format!("{}{length}{fields} | {}", status.as_u16(), output[end..].escape_ascii())
            }
        }
    }

    #[test]
    fn heads() {
        for (output, expected) in [
            ("Content-Type: text/plain\n\nbody\n\n", "200 content-type=text/plain | body\\n\\n"),
            ("content-type:text/plain\r\n\r\n\r\n", "200 content-type=text/plain | \\r\\n"),
            ("Content-Type: a/b\n\r\nx", "200 content-type=a/b | x"),
            ("Status: 404 Not Found\nContent-Type: a/b\n\n", "404 content-type=a/b | "),
            ("Status: 204\n\n", "204 | "),
            ("Status:599 Odd \n\n", "599 | "),
            ("Location: https://a/\n\n", "302 location=https://a/ | "),
            ("Location: /a?b\n\n", "302 location=/a?b | "),
            ("Status: 301 Moved\nLocation: /a\n\n", "301 location=/a | "),
            (
                "Status: 201\nLocation: /a\nContent-Type: a/b\n\nx",
                "201 location=/a content-type=a/b | x",
            ),
            ("Content-Length: 5\nContent-Type: a/b\n\nhello", "200 5 content-type=a/b | hello"),
            (
                "Content-Type: a/b\nSet-Cookie: a=1\nSet-Cookie: b=2\n\n",
                "200 content-type=a/b set-cookie=a=1 set-cookie=b=2 | ",
            ),
            (
                "Content-Type: a/b\nConnection: close\nTransfer-Encoding: chunked\nUpgrade: x\n\n",
                "200 content-type=a/b | ",
            ),
            ("", "more"),
            ("Content-Type: a/b\n", "more"),
            ("Content-Type: a/b\r\n\r", "more"),
            ("\n", "its head has neither Content-Type nor Location nor Status"),
            ("X: y\n\n", "its head has neither Content-Type nor Location nor Status"),
            (
                "HTTP/1.1 200 OK\nX: y\n\n",
                "it speaks HTTP itself (`nph-`), which is not supported: HTTP/1.1 200 OK",
            ),
            ("hello\n\n", "a line of its head has no colon: hello"),
            ("Content-Type: a/b\n folded\n\n", "a line of its head has no colon:  folded"),
            ("Content-Type: a/b\n x: y\n\n", "a line of its head is no field:  x: y"),
            ("Content Type: a/b\n\n", "a line of its head is no field: Content Type: a/b"),
            ("Content-Type : a/b\n\n", "a line of its head is no field: Content-Type : a/b"),
            (": a\n\n", "a line of its head is no field: : a"),
            ("X: a\0b\n\n", "a line of its head is no field: X: a\\x00b"),
            ("X: a\rb\n\n", "a line of its head is no field: X: a\\rb"),
            ("Status: 100\n\n", "no status that a response can have: Status: 100"),
            ("Status: 600\n\n", "no status that a response can have: Status: 600"),
            ("Status: 20\n\n", "no status that a response can have: Status: 20"),
            ("Status: +20\n\n", "no status that a response can have: Status: +20"),
            ("Status: 2000\n\n", "no status that a response can have: Status: 2000"),
            ("Status: OK\n\n", "no status that a response can have: Status: OK"),
            ("Status: 200\nStatus: 200\n\n", "a second status: Status: 200"),
            ("Content-Type: a/b\nContent-Type: a/b\n\n", "a second type: Content-Type: a/b"),
            ("Location: /\nLocation: /\n\n", "a second location: Location: /"),
            ("Content-Length: x\n\n", "no length, or a second one: Content-Length: x"),
            (
                "Content-Length: 1\nContent-Length: 1\n\n",
                "no length, or a second one: Content-Length: 1",
            ),
        ] {
            assert_eq!(read(output.as_bytes()), expected, "{output:?}");
        }
    }

    #[test]
    fn heads_and_their_limit() {
        for (spaces, behind, expected) in [
            (82, "", "200 content-type=a/b | "),
            (82, "body", "200 content-type=a/b | body"),
            (83, "", "its head is larger than allowed"),
        ] {
            // 18 bytes and the spaces.
            let output = format!("Content-Type:{}a/b\n\n{behind}", " ".repeat(spaces));
            assert_eq!(read(output.as_bytes()), expected);
        }
        assert_eq!(read(&[b'x'; 100]), "more");
        assert_eq!(read(&[b'x'; 101]), "its head is larger than allowed");
    }

    #[test]
    fn a_head_that_comes_byte_by_byte() {
        let output = b"Content-Type: a/b\r\nStatus: 404\n\r\n";
        for end in 0..output.len() {
            assert_eq!(read(&output[..end]), "more", "{end}");
        }
        assert_eq!(read(output), "404 content-type=a/b | ");
    }
}
