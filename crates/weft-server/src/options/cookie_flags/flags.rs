//! Changes to the attributes of a cookie. Pure.

use std::fmt;

use weft_config::suggest;

/// Changes to the attributes `Secure`, `HttpOnly` and `SameSite` (RFC 6265 §4.1.2). `None`: the
/// attribute stays as the application has set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CookieFlags {
    secure: Option<bool>,
    http_only: Option<bool>,
    /// The inner `None` removes the attribute.
    same_site: Option<Option<SameSite>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SameSite {
    Strict,
    Lax,
    None,
}

/// Flags as they are written, each with its change.
const FLAGS: [(&str, CookieFlags); 8] = {
    const NONE: CookieFlags = CookieFlags { secure: None, http_only: None, same_site: None };
    const fn same_site(value: Option<SameSite>) -> CookieFlags {
        CookieFlags { same_site: Some(value), ..NONE }
    }
    [
        ("secure", CookieFlags { secure: Some(true), ..NONE }),
        ("nosecure", CookieFlags { secure: Some(false), ..NONE }),
        ("httponly", CookieFlags { http_only: Some(true), ..NONE }),
        ("nohttponly", CookieFlags { http_only: Some(false), ..NONE }),
        ("samesite=strict", same_site(Some(SameSite::Strict))),
        ("samesite=lax", same_site(Some(SameSite::Lax))),
        ("samesite=none", same_site(Some(SameSite::None))),
        ("nosamesite", same_site(None)),
    ]
};

impl CookieFlags {
    /// Parses flags that are separated by spaces, such as `secure samesite=lax`.
    ///
    /// # Errors
    /// With an unknown flag, and with two flags about one attribute.
    pub(super) fn parse(text: &str) -> Result<CookieFlags, String> {
        let mut flags = CookieFlags::default();
        for word in text.split_whitespace() {
            let known = FLAGS.iter().map(|(name, _)| *name);
            let found = FLAGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
            let Some((name, flag)) = found else {
                let hint = match suggest(word, known.clone()) {
                    Some(suggestion) => format!("did you mean `{suggestion}`?"),
                    None => format!("known are {}", known.collect::<Vec<_>>().join(", ")),
                };
                return Err(format!("unknown flag `{word}`; {hint}"));
            };
            if let Some(other) = flags.flag_of_same_attribute(flag) {
                return Err(format!("`{other}` and `{name}` are about the same attribute"));
            }
            flags.secure = flags.secure.or(flag.secure);
            flags.http_only = flags.http_only.or(flag.http_only);
            flags.same_site = flags.same_site.or(flag.same_site);
        }
        match flags == CookieFlags::default() {
            true => Err("expected flags such as \"secure httponly samesite=lax\"".to_owned()),
            false => Ok(flags),
        }
    }

    /// Returns the name of a flag of these that is about the attribute of `flag`.
    fn flag_of_same_attribute(&self, flag: &CookieFlags) -> Option<&'static str> {
        let is_same = |(_, own): &&(&str, CookieFlags)| {
            self.includes(own)
                && (own.secure.is_some() && flag.secure.is_some()
                    || own.http_only.is_some() && flag.http_only.is_some()
                    || own.same_site.is_some() && flag.same_site.is_some())
        };
        FLAGS.iter().find(is_same).map(|(name, _)| *name)
    }

    fn includes(&self, flag: &CookieFlags) -> bool {
        (flag.secure.is_none() || flag.secure == self.secure)
            && (flag.http_only.is_none() || flag.http_only == self.http_only)
            && (flag.same_site.is_none() || flag.same_site == self.same_site)
    }

    /// Returns a cookie, the value of `Set-Cookie`, with its attributes changed.
    pub(super) fn apply(&self, cookie: &[u8]) -> Vec<u8> {
        let mut parts = cookie.split(|&b| b == b';');
        let mut changed = parts.next().unwrap_or_default().to_vec();
        for part in parts.filter(|part| !self.replaces(part)) {
            changed.push(b';');
            changed.extend_from_slice(part);
        }
        if self.secure == Some(true) {
            changed.extend_from_slice(b"; Secure");
        }
        if self.http_only == Some(true) {
            changed.extend_from_slice(b"; HttpOnly");
        }
        if let Some(Some(value)) = self.same_site {
            changed.extend_from_slice(format!("; SameSite={value:?}").as_bytes());
        }
        changed
    }

    /// Returns true if an attribute of a cookie is removed or set.
    fn replaces(&self, part: &[u8]) -> bool {
        let end = part.iter().position(|&b| b == b'=').unwrap_or(part.len());
        match part[..end].trim_ascii() {
            name if name.eq_ignore_ascii_case(b"secure") => self.secure.is_some(),
            name if name.eq_ignore_ascii_case(b"httponly") => self.http_only.is_some(),
            name if name.eq_ignore_ascii_case(b"samesite") => self.same_site.is_some(),
            _ => false,
        }
    }
}

impl fmt::Display for CookieFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = FLAGS.iter().filter(|(_, flag)| self.includes(flag));
        let names: Vec<&str> = own.map(|(name, _)| *name).collect();
        f.write_str(&names.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_attributes() {
        for (flags, cookie, expected) in [
            ("secure", "a=b", "a=b; Secure"),
            ("secure", "a=b;secure ; Path=/", "a=b; Path=/; Secure"),
            ("secure", "a=secure; Path=/secure", "a=secure; Path=/secure; Secure"),
            ("nosecure", "a=b; Secure; HttpOnly", "a=b; HttpOnly"),
            (
                "SameSite=Lax HttpOnly",
                "a=b; SameSite=None; Secure",
                "a=b; Secure; HttpOnly; SameSite=Lax",
            ),
            ("nosamesite nohttponly", "a=b; samesite; HTTPONLY=1; x", "a=b; x"),
            (
                "samesite=none secure",
                "a=\"x\"; Expires=Wed, 1 Jan 2027",
                "a=\"x\"; Expires=Wed, 1 Jan 2027; Secure; SameSite=None",
            ),
            ("secure", "", "; Secure"),
        ] {
            let parsed = CookieFlags::parse(flags).unwrap();
            let changed = parsed.apply(cookie.as_bytes());
            assert_eq!(
                changed.escape_ascii().to_string(),
                expected.as_bytes().escape_ascii().to_string()
            );
            assert_eq!(parsed.apply(&changed), changed, "{flags}: {cookie}");
            assert_eq!(CookieFlags::parse(&parsed.to_string()), Ok(parsed));
        }
    }
}
