//! `weft hash-password`: the line of a user in a password file.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use crate::base::sys::HiddenInput;

/// Logarithm of the number of rounds: some 50 ms for each verification.
const COST: u32 = 10;

/// Maximum length of a password, in bytes: bcrypt ignores the rest.
const MAX_BYTES: usize = 72;

/// Reads a password, without showing it if it is typed, and returns its hash by bcrypt, behind the
/// name of the user if there is one.
///
/// # Errors
/// If there is no password or no valid name, if the password is too long, or if it is typed
/// differently for the second time.
pub(crate) fn run(name: Option<&str>) -> Result<String, String> {
    if name
        .is_some_and(|name| name.is_empty() || name.contains(|c: char| c == ':' || c.is_control()))
    {
        return Err("the name of a user is not empty, and has no colon".to_owned());
    }
    let password = if io::stdin().is_terminal() { type_twice()? } else { read_line()? };
    let hash = hash(password.as_bytes())?;
    Ok(name.map_or_else(|| format!("{hash}\n"), |name| format!("{name}:{hash}\n")))
}

fn type_twice() -> Result<String, String> {
    let first = type_hidden("Password: ")?;
    match type_hidden("Again: ")? == first {
        true => Ok(first),
        false => Err("the passwords differ".to_owned()),
    }
}

fn type_hidden(prompt: &str) -> Result<String, String> {
    // Ignored: without a prompt, the user sees that the program waits.
    let _ = io::stderr().write_all(prompt.as_bytes());
    let hidden = HiddenInput::begin();
    let line = read_line();
    drop(hidden);
    let _ = io::stderr().write_all(b"\n");
    line
}

/// Reads a line of the standard input, without its end.
fn read_line() -> Result<String, String> {
    let mut line = String::new();
    // One byte more than the longest line that is valid, with its end.
    let mut input = io::stdin().lock().take(MAX_BYTES as u64 + 3);
    input.read_line(&mut line).map_err(|error| format!("cannot read the password: {error}"))?;
    let line = line.strip_suffix('\n').unwrap_or(&line);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn hash(password: &[u8]) -> Result<String, String> {
    if password.is_empty() {
        return Err("the password is empty".to_owned());
    }
    if password.len() > MAX_BYTES {
        return Err(format!(
            "the password is longer than {MAX_BYTES} bytes, which is all that bcrypt uses"
        ));
    }
    let mut salt = [0; 16];
    aws_lc_rs::rand::fill(&mut salt).map_err(|_| "the system has no random numbers")?;
    let parts = bcrypt::hash_with_salt(password, COST, salt);
    let parts = parts.map_err(|error| format!("cannot hash the password: {error}"))?;
    Ok(parts.format_for_version(bcrypt::Version::TwoY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_valid_and_have_a_salt() {
        let [first, second] = [(); 2].map(|()| hash(b"open sesame").unwrap());
        assert_ne!(first, second);
        assert!(first.starts_with("$2y$10$"), "{first}");
        assert!(bcrypt::verify("open sesame", &first).unwrap());
        assert!(!bcrypt::verify("open", &first).unwrap());
        assert!(hash(&[b'a'; MAX_BYTES]).is_ok());
        assert!(hash(&[b'a'; MAX_BYTES + 1]).unwrap_err().contains("72 bytes"));
        assert!(hash(b"").is_err());
    }
}
