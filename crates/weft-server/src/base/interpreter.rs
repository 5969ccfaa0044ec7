//! The reason that a script with an interpreter cannot be run: the error of the kernel names
//! neither the interpreter nor the end of a line of Windows.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Maximum length of the first line, as of the kernel.
const MAX_LINE: u64 = 256;

/// Returns the error with its reason, if the script exists and its interpreter does not.
pub(crate) fn explain(script: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    let mut line = Vec::new();
    let read = File::open(script).and_then(|file| file.take(MAX_LINE).read_to_end(&mut line));
    let reason = read.ok().and_then(|_| reason(&line));
    match reason {
        Some(reason) => io::Error::new(error.kind(), format!("{error}: {reason}")),
        None => error,
    }
}

/// Returns the reason in the beginning of a script.
fn reason(text: &[u8]) -> Option<String> {
    let line = text.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let interpreter = String::from_utf8_lossy(line.trim_ascii());
    let interpreter = interpreter.split_ascii_whitespace().next().unwrap_or_default();
    Some(match line.ends_with(b"\r") {
        true => format!(
            "its lines end as in Windows, so that the system looks for the interpreter \
             `{interpreter}\\r`; `sed -i 's/\\r$//'` converts them"
        ),
        false => format!("the interpreter `{interpreter}` of its first line does not exist"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_interpreter() {
        for (text, expected) in [
            ("#!/bin/sh\r\necho\r\n", Some("looks for the interpreter `/bin/sh\\r`;")),
            ("#!/usr/bin/env perl -w\r\n", Some("looks for the interpreter `/usr/bin/env\\r`;")),
            ("#! /no/perl -w\n", Some("the interpreter `/no/perl` of its first line")),
            ("#!/no/perl", Some("the interpreter `/no/perl` of its first line")),
            ("echo\n", None),
            ("", None),
        ] {
            let reason = reason(text.as_bytes());
            assert_eq!(reason.is_some(), expected.is_some(), "{text:?}");
            let reason = reason.unwrap_or_default();
            assert!(reason.contains(expected.unwrap_or_default()), "{text:?}: {reason}");
        }
    }
}
