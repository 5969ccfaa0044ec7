//! Unix sockets to listen on: `unix:PATH`, with the mode and the owner of the file behind it.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::sys::{Group, User, set_mode, set_owner};

/// Beginning of the address of a Unix socket.
const PREFIX: &str = "unix:";

/// The address of a Unix socket to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnixAddress {
    pub(crate) path: PathBuf,
    /// `None`: as the umask of the process makes it.
    mode: Option<u32>,
    /// User and group. `None`: user and group of the process.
    owner: Option<(String, Option<String>)>,
}

impl UnixAddress {
    /// Parses `unix:PATH`, `unix:PATH mode=0660` and `unix:PATH mode=0660 owner=USER:GROUP`.
    /// Returns `None` for an address of another kind. A path may have spaces.
    pub(crate) fn parse(text: &str) -> Option<Result<UnixAddress, String>> {
        let mut path = text.strip_prefix(PREFIX)?;
        let (mut mode, mut owner) = (None, None);
        while let Some((before, word)) = path.rsplit_once(' ') {
            match word.split_once('=') {
                Some(("mode", value)) => match parse_mode(value) {
                    Some(value) => mode = Some(value),
                    None => {
                        return Some(Err(format!("expected a mode such as 0660, found {value:?}")));
                    }
                },
                Some(("owner", value)) => owner = Some(parse_owner(value)),
                _ => break,
            }
            path = before.trim_end();
        }
        Some(Ok(UnixAddress { path: path.into(), mode, owner }))
    }

    /// Sets the owner and the mode of the file. The mode is last, so that no other user gets
    /// permissions that are meant for the owner.
    ///
    /// # Errors
    /// If there is no such user or group, or the process may not change the owner.
    pub(crate) fn apply(&self) -> io::Result<()> {
        if let Some((user, group)) = &self.owner {
            let not_found = |what: &str, name: &str| {
                io::Error::new(io::ErrorKind::NotFound, format!("there is no {what} `{name}`"))
            };
            let user = User::from_name(user)?.ok_or_else(|| not_found("user", user))?;
            let group = match group {
                Some(name) => Group::from_name(name)?.ok_or_else(|| not_found("group", name))?.gid,
                None => user.gid,
            };
            set_owner(&self.path, user.uid, group)?;
        }
        match self.mode {
            Some(mode) => set_mode(&self.path, mode),
            None => Ok(()),
        }
    }

    /// Returns true if the file has a mode or an owner of its own.
    pub(crate) fn has_settings(&self) -> bool {
        self.mode.is_some() || self.owner.is_some()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns an address of a key `listen` without mode and owner.
    pub(crate) fn without_settings(text: &str) -> String {
        match UnixAddress::parse(text) {
            Some(Ok(address)) => format!("{PREFIX}{}", address.path.display()),
            _ => text.to_owned(),
        }
    }
}

fn parse_mode(text: &str) -> Option<u32> {
    let is_octal =
        (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777)
}

fn parse_owner(text: &str) -> (String, Option<String>) {
    match text.split_once(':') {
        Some((user, group)) => (user.to_owned(), Some(group.to_owned())),
        None => (text.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_modes_and_owners() {
        let owner =
            |user: &str, group: Option<&str>| Some((user.to_owned(), group.map(str::to_owned)));
        for (text, path, mode, expected) in [
            ("unix:/a", "/a", None, None),
            ("unix:/a b", "/a b", None, None),
            ("unix:/a mode=0660", "/a", Some(0o660), None),
            ("unix:/a  mode=666", "/a", Some(0o666), None),
            ("unix:/a mode=0600 owner=u", "/a", Some(0o600), owner("u", None)),
            ("unix:/a b owner=u:g mode=0770", "/a b", Some(0o770), owner("u", Some("g"))),
            ("unix:/a=b", "/a=b", None, None),
            ("unix:/a x=y", "/a x=y", None, None),
        ] {
            let parsed = UnixAddress::parse(text).unwrap().unwrap();
            assert_eq!(
                (parsed.path(), parsed.mode, parsed.owner.clone()),
                (Path::new(path), mode, expected)
            );
        }
        for text in ["unix:/a mode=", "unix:/a mode=9", "unix:/a mode=0888", "unix:/a mode=07777"] {
            assert!(UnixAddress::parse(text).unwrap().is_err(), "{text}");
        }
        assert_eq!(UnixAddress::parse(":80"), None);
    }
}
