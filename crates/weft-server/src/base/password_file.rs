//! Users and hashed passwords of a file in the format of Apache's htpasswd.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use argon2::{Argon2, PasswordVerifier};
use sha_crypt::ShaCrypt;
use sha2::{Digest as _, Sha256};
use weft::client_limit::ClientLimit;
use weft::middleware::User;

use crate::base::verifications::{self, Busy, Digest, Requester, Verifications};
use crate::base::watched_file::WatchedFile;

/// A password file, which is read again when it changes.
///
/// Hashes of passwords are slow by design: bcrypt and Argon2 take 50 ms and more. So a password
/// that was right is remembered (as SHA-256, in memory only) until its line changes. All others are
/// [verified](Verifications) in other threads. Guessing does not delay users that have logged in
/// before.
pub(crate) struct PasswordFile {
    file: WatchedFile<Hashes>,
    verified: Mutex<Verified>,
    /// A hash that has read a random block. Its digests cannot be predicted, so that the time of a
    /// comparison with the remembered ones reveals nothing about these.
    keyed: Sha256,
    verifications: Verifications<bool>,
}

/// Limit for the passwords of all files.
static LIMIT: LazyLock<ClientLimit> = LazyLock::new(verifications::new_limit);

/// Hash of the password by the name of the user.
type Hashes = BTreeMap<String, Arc<str>>;

/// Users whose password was right.
struct Verified {
    /// Contents of the file for which it was.
    hashes: Arc<Hashes>,
    /// Users by the digests of their credentials, as a client has sent them. Each user has one.
    users: BTreeMap<Digest, User>,
}

/// Longest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Longest password that is verified, in bytes: the limit of libxcrypt. SHA-crypt takes time in
/// proportion to the length, 250 ms for 11 KB.
const MAX_PASSWORD_BYTES: usize = 512;

impl PasswordFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, or a line has no hash of a known type.
    pub(crate) fn open(path: &Path) -> Result<PasswordFile, String> {
        let file = WatchedFile::open(path, MAX_FILE_BYTES, parse)?;
        let verified = Verified { hashes: file.current(), users: BTreeMap::new() };
        let verifications = Verifications::new(LIMIT.clone());
        Ok(PasswordFile {
            file,
            verified: Mutex::new(verified),
            keyed: keyed_hash(),
            verifications,
        })
    }

    /// Returns the user whose password was right in a former request with the same `Authorization`.
    pub(crate) fn remembered(&self, field: &[u8]) -> Option<User> {
        let digest = self.digest(field);
        self.verified().users.get(&digest).cloned()
    }

    /// Returns the user if the password is right, and caches the `Authorization` of the request.
    /// Unknown users take as long as known ones. Passwords over 512 bytes are wrong.
    ///
    /// # Errors
    /// If too many other passwords are being verified.
    pub(crate) async fn verify(
        &self,
        name: &str,
        password: &str,
        field: &[u8],
        requester: Requester,
    ) -> Result<Option<User>, Busy> {
        if password.len() > MAX_PASSWORD_BYTES {
            return Ok(None);
        }
        let Some((hash, is_known)) = self.current_hash(name) else { return Ok(None) };
        let (password, hash_to_verify) = (password.to_owned(), hash.clone());
        let verify = move || is_match(&hash_to_verify, &password);
        let question = self.question(field, &hash);
        let is_right = self.verifications.verify(question, requester, verify).await?;
        if !(is_right && is_known) {
            return Ok(None);
        }
        let user = User::new(name);
        let mut verified = self.verified();
        // The file may have changed meanwhile.
        if verified.hashes.get(name) == Some(&hash) {
            verified.users.retain(|_, known| known.as_str() != name);
            verified.users.insert(self.digest(field), user.clone());
        }
        Ok(Some(user))
    }

    /// Returns the digest of credentials and the hash that they are compared with. A request after
    /// a change of the file must not share the verification against the former hash.
    fn question(&self, field: &[u8], hash: &str) -> Digest {
        let parts = self.keyed.clone().chain_update(hash).chain_update(b"\0").chain_update(field);
        parts.finalize().into()
    }

    fn digest(&self, field: &[u8]) -> Digest {
        self.keyed.clone().chain_update(field).finalize().into()
    }

    /// Returns the hash of a user, and true. For an unknown user it returns the hash of another
    /// user, and false. Which one depends on the name, so that unknown names take as many different
    /// times as the schemes of a file.
    fn current_hash(&self, name: &str) -> Option<(Arc<str>, bool)> {
        let hashes = self.file.current();
        let known = hashes.get(name).map(|hash| (hash.clone(), true));
        known.or_else(|| {
            let number = u64::from_le_bytes(*self.digest(name.as_bytes()).first_chunk()?);
            let other = number.checked_rem(hashes.len() as u64)?;
            hashes.values().nth(other as usize).map(|hash| (hash.clone(), false))
        })
    }

    /// Returns the users whose password was right, without users whose line has changed since.
    fn verified(&self) -> MutexGuard<'_, Verified> {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.file.current();
        if !Arc::ptr_eq(&current, &verified.hashes) {
            let former = std::mem::replace(&mut verified.hashes, current.clone());
            let hash_is_same = |name: &str| former.get(name) == current.get(name);
            verified.users.retain(|_, user| hash_is_same(user.as_str()));
        }
        verified
    }
}

/// Parses lines of the form `NAME:HASH`. Empty lines and those that begin with `#` are ignored.
fn parse(content: &[u8]) -> Result<Hashes, String> {
    let text = std::str::from_utf8(content).map_err(|_| "it is not valid UTF-8")?;
    let mut hashes = Hashes::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |reason: &str| format!("line {}: {reason}", number + 1);
        let (name, hash) = line.split_once(':').ok_or_else(|| at("expected NAME:HASH"))?;
        let Some(scheme) = Scheme::of(hash) else {
            return Err(at("expected a hash of bcrypt ($2y$…), SHA-crypt ($5$…, $6$…) or Argon2 \
                           ($argon2id$…); `htpasswd -B FILE NAME` makes one"));
        };
        if !scheme.is_complete(hash) {
            return Err(at(&format!(
                "the hash of {name:?} is no complete {scheme:?} hash, so that \
                                    no password matches; `htpasswd -B FILE NAME` makes one"
            )));
        }
        if hashes.insert(name.to_owned(), hash.into()).is_some() {
            return Err(at("the user is given twice"));
        }
    }
    Ok(hashes)
}

/// A scheme of hashed passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Bcrypt,
    ShaCrypt,
    Argon2,
}

impl Scheme {
    fn of(hash: &str) -> Option<Scheme> {
        const PREFIXES: [(&str, Scheme); 6] = [
            ("$2a$", Scheme::Bcrypt),
            ("$2b$", Scheme::Bcrypt),
            ("$2y$", Scheme::Bcrypt),
            ("$5$", Scheme::ShaCrypt),
            ("$6$", Scheme::ShaCrypt),
            ("$argon2", Scheme::Argon2),
        ];
        let found = PREFIXES.iter().find(|(prefix, _)| hash.starts_with(prefix));
        found.map(|(_, scheme)| *scheme)
    }
}

impl Scheme {
    /// Returns true if all parts of a hash are valid, so that some password can match.
    fn is_complete(self, hash: &str) -> bool {
        match self {
            Scheme::Bcrypt => hash
                .parse::<bcrypt::HashParts>()
                .is_ok_and(|parts| (MIN_BCRYPT_COST..=MAX_BCRYPT_COST).contains(&parts.get_cost())),
            Scheme::ShaCrypt => is_sha_crypt(hash),
            Scheme::Argon2 => argon2::PasswordHash::new(hash).is_ok_and(|parsed| {
                argon2::Algorithm::try_from(parsed.algorithm.as_str()).is_ok()
                    && parsed.version.is_none_or(|it| argon2::Version::try_from(it).is_ok())
                    && argon2::Params::try_from(&parsed).is_ok()
                    && parsed.salt.is_some()
                    && parsed.hash.is_some()
            }),
        }
    }
}

const MIN_BCRYPT_COST: u32 = 4;
const MAX_BCRYPT_COST: u32 = 31;

/// Maximum length of the salt of SHA-crypt. Tools of systems ignore the rest of a longer one.
const MAX_SHA_CRYPT_SALT: usize = 16;

/// Returns true if a text has the form `$5$[rounds=N$]SALT$HASH`, or with `$6$` and a longer hash.
fn is_sha_crypt(text: &str) -> bool {
    let length = if text.starts_with("$5$") { 43 } else { 86 };
    let mut fields: Vec<&str> = text.split('$').skip(2).collect();
    if fields.first().is_some_and(|first| first.starts_with("rounds="))
        && fields.remove(0).parse::<sha_crypt::Params>().is_err()
    {
        return false;
    }
    let is_encoded = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/');
    match fields[..] {
        [salt, hash] => {
            (1..=MAX_SHA_CRYPT_SALT).contains(&salt.len())
                && hash.len() == length
                && salt.bytes().chain(hash.bytes()).all(is_encoded)
        }
        _ => false,
    }
}

fn is_match(hash: &str, password: &str) -> bool {
    match Scheme::of(hash) {
        Some(Scheme::Bcrypt) => bcrypt::verify(password, hash).unwrap_or(false),
        Some(Scheme::ShaCrypt) => {
            ShaCrypt::default().verify_password(password.as_bytes(), hash).is_ok()
        }
        Some(Scheme::Argon2) => {
            Argon2::default().verify_password(password.as_bytes(), hash).is_ok()
        }
        None => false,
    }
}

/// Returns a hash that has read a random block of 64 bytes, its block size.
fn keyed_hash() -> Sha256 {
    let random = |part: u64| RandomState::new().hash_one(part).to_le_bytes();
    (0..8).map(random).fold(Sha256::new(), Sha256::chain_update)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user for each scheme, all with the password `open sesame`.
    const HASHES: [&str; 4] = [
        "bcrypt:$2b$04$13JgGd/o0lgo1LEw3aX1Q.wexhYWPu/4NSjFzpo1zhhNouxntxg2e",
        "sha256:$5$rounds=1000$saltsalt$nKsyTQBmKz4GdCft0Sv/FbzLiu0y3wFdEXOzudLQLJ5",
        "sha512:$6$rounds=1000$saltsalt$/IiX/CoEcxCZ9SksEXnbjfCT1LGvD4z5OpJkaFYl/T37OAwuKZ8I8BixDhruhPLkw6lS7dw/6wQWgQnGo7lLg/",
        "argon2:$argon2id$v=19$m=64,t=1,p=1$YKuUe7cJMfc$Vu1BclhXm2JXKO39vN8h+mv3lXly/gYw+LAXFzB+1qs",
    ];

    /// Hash of another password.
    const BCRYPT: &str = "$2b$04$lIa8X/JheYqiZe/kSqu8COJB8p1MEwDzD73uyieC.MdROdQ0TRqXS";

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn refuses_lines_without_a_strong_hash() {
        for (text, expected) in [
            ("", None),
            ("# a comment\n\n", None),
            ("alice", Some("line 1: expected NAME:HASH")),
            ("\nalice:secret", Some("line 2: expected a hash")),
            ("alice:$apr1$abc$def", Some("line 1: expected a hash")),
            ("alice:{SHA}abc", Some("line 1: expected a hash")),
            (&format!("{}\n{}", HASHES[1], HASHES[1]), Some("line 2: the user is given twice")),
        ] {
            let found = parse(text.as_bytes()).err();
            assert_eq!(found.is_some(), expected.is_some(), "{text}");
            let starts = |found: &String| found.starts_with(expected.unwrap());
            assert!(found.as_ref().is_none_or(starts), "{text}: {found:?}");
        }
    }

    #[test]
    fn refuses_hashes_that_no_password_matches() {
        for line in HASHES {
            let (_, hash) = line.split_once(':').unwrap();
            let is_refused = |hash: &str| {
                let found = parse(format!("alice:{hash}").as_bytes()).err();
                let expected = "line 1: the hash of \"alice\" is no complete";
                assert!(found.as_ref().is_none_or(|it| it.starts_with(expected)), "{found:?}");
                found.is_some()
            };
            assert!(!is_refused(hash), "{hash}");
            let cut = &hash[..hash.len() - 1];
            let (head, digest) = hash.rsplit_once('$').unwrap();
            for broken in [
                cut.to_owned(),
                format!("{hash}$"),
                format!("{head}$"),
                head.to_owned(),
                format!("{head}${}!", &digest[..digest.len() - 1]),
                format!("{head}${}é", &digest[..digest.len() - 2]),
            ] {
                assert!(is_refused(&broken), "{broken}");
            }
        }
        let refused = |from: &str, to: &str| HASHES.map(|line| line.replace(from, to));
        for line in [
            &refused("$04$", "$03$")[0],
            &refused("$04$", "$32$")[0],
            &refused("rounds=1000$", "rounds=999$")[1],
            &refused("rounds=1000$", "rounds=x$")[2],
            &refused("saltsalt", "saltsaltsaltsalts")[2],
            &refused("m=64", "m=x")[3],
            &refused("v=19", "v=1")[3],
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
        for line in [&refused("$04$", "$05$")[0], &refused("rounds=1000$", "")[1]] {
            assert!(parse(line.as_bytes()).is_ok(), "{line}");
        }
    }

    /// Logs in as the middleware does. Returns true if the user is the one with this name.
    async fn is_right(file: &PasswordFile, name: &str, password: &str) -> bool {
        let field = format!("{name}:{password}").into_bytes();
        let user = match file.remembered(&field) {
            Some(user) => Some(user),
            None => file.verify(name, password, &field, Requester::default()).await.unwrap(),
        };
        user.is_some_and(|user| user.as_str() == name)
    }

    /// An unknown name is compared with the hash of another user. That comparison, still running,
    /// is none of the user's once the file has the name.
    #[test]
    fn shares_no_verification_against_another_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let [line, field] = [HASHES[0], "nobody:open sesame"];
        std::fs::write(&path, line).unwrap();
        let file = PasswordFile::open(&path).unwrap();
        runtime().block_on(async {
            let verify =
                || file.verify("nobody", "open sesame", field.as_bytes(), Requester::default());
            let after_the_change = async {
                std::fs::write(&path, format!("{line}\nnobody:{BCRYPT}\n")).unwrap();
                file.file.expire();
                verify().await
            };
            let (before, after) = tokio::join!(verify(), after_the_change);
            assert!(before.unwrap().is_none() && after.unwrap().is_none());
            assert!(is_right(&file, "bcrypt", "open sesame").await, "the password is right");
        });
    }

    #[test]
    fn verifies_passwords_and_follows_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::fs::write(&path, format!("{}\n", HASHES.join("\n"))).unwrap();
        let file = PasswordFile::open(&path).unwrap();
        runtime().block_on(async {
            // Twice: the second time without the hash of the file.
            for _ in 0..2 {
                for (name, password, expected) in [
                    ("bcrypt", "open sesame", true),
                    ("sha256", "open sesame", true),
                    ("sha512", "open sesame", true),
                    ("argon2", "open sesame", true),
                    ("bcrypt", "open", false),
                    ("sha512", "open sesame ", false),
                    ("argon2", "", false),
                    ("nobody", "open sesame", false),
                    ("", "", false),
                ] {
                    let found = is_right(&file, name, password).await;
                    assert_eq!(found, expected, "{name} {password}");
                }
            }
        });
        assert_eq!(file.verified().users.len(), 4);
        std::fs::write(&path, format!("bcrypt:{BCRYPT}\n{}\n", HASHES[1])).unwrap();
        file.file.expire();
        runtime().block_on(async {
            assert!(is_right(&file, "sha256", "open sesame").await);
            assert!(!is_right(&file, "bcrypt", "open sesame").await);
            assert!(!is_right(&file, "argon2", "open sesame").await);
        });
        assert_eq!(file.verified().users.len(), 1);
        std::fs::write(&path, "broken\n").unwrap();
        file.file.expire();
        runtime().block_on(async { assert!(is_right(&file, "sha256", "open sesame").await) });
    }
}
