//! Keys that sign messages of the DNS (TSIG, RFC 8945).

use std::io::Read;
use std::path::Path;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use weft_upstream::dns::message::put_name;

/// Maximum size of a file with a key, in bytes.
const MAX_FILE_BYTES: u64 = 4_096;

/// Maximum difference between the clocks of client and server, in seconds (RFC 8945 §10).
const FUDGE: u16 = 300;

const ALGORITHM: &str = "hmac-sha256";

/// TYPE of the record, and its CLASS, which is ANY (RFC 8945 §4.2).
pub(super) const TYPE_TSIG: u16 = 250;
const CLASS_ANY: u16 = 255;

/// A secret with its name. The server has the same secret under the same name.
#[derive(Debug)]
pub(super) struct TsigKey {
    name: String,
    key: hmac::Key,
}

impl TsigKey {
    /// Reads a file in the form of `tsig-keygen` and `named.conf`.
    pub(super) fn read(path: &Path) -> Result<TsigKey, String> {
        let mut text = String::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
        let key = match read {
            Ok(_) => TsigKey::parse(&text),
            Err(error) => Err(error.to_string()),
        };
        key.map_err(|reason| format!("key {}: {reason}", path.display()))
    }

    /// Parses `key "NAME" { algorithm hmac-sha256; secret "BASE64"; };`.
    fn parse(text: &str) -> Result<TsigKey, String> {
        let words: Vec<&str> = text
            .split(|c: char| c.is_whitespace() || "{};\"".contains(c))
            .filter(|word| !word.is_empty())
            .collect();
        let after = |keyword: &str| {
            let found = words.windows(2).find(|pair| pair[0] == keyword).map(|pair| pair[1]);
            found.ok_or_else(|| format!("it has no `{keyword}`"))
        };
        let algorithm = after("algorithm")?;
        if algorithm != ALGORITHM {
            return Err(format!("expected the algorithm {ALGORITHM}, found {algorithm}"));
        }
        let secret = BASE64_STANDARD.decode(after("secret")?);
        let secret = secret.map_err(|error| format!("the secret is invalid: {error}"))?;
        let name = after("key")?.to_ascii_lowercase();
        Ok(TsigKey { name, key: hmac::Key::new(hmac::HMAC_SHA256, &secret) })
    }

    /// Appends the signature of a message, made at `time`, and counts it (RFC 8945 §4.2, §4.3).
    pub(super) fn sign(&self, message: &mut Vec<u8>, id: u16, time: u64) -> Result<(), String> {
        let mut name = Vec::new();
        put_name(&mut name, &self.name)?;
        let mut head = Vec::new();
        put_name(&mut head, ALGORITHM)?;
        // Of 48 bits.
        head.extend_from_slice(&time.to_be_bytes()[2..]);
        head.extend(FUDGE.to_be_bytes());
        // Neither an error nor other data.
        let tail = [0; 4];
        let class_and_ttl = [CLASS_ANY.to_be_bytes(), [0; 2], [0; 2]].concat();
        let signed = [&message[..], &name, &class_and_ttl, &head, &tail].concat();
        let mac = hmac::sign(&self.key, &signed);
        let mac = mac.as_ref();
        let data =
            [&head[..], &(mac.len() as u16).to_be_bytes(), mac, &id.to_be_bytes(), &tail].concat();
        message.extend(name);
        message.extend(TYPE_TSIG.to_be_bytes());
        message.extend(class_and_ttl);
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(data);
        // The number of additional records.
        message[11] += 1;
        Ok(())
    }
}

#[cfg(test)]
pub(super) const SAMPLE: &str = "key \"weft.Example\" {\n\talgorithm hmac-sha256;\n\tsecret \
                                 \"c2VjcmV0IG9mIHRoZSB0ZXN0cw==\";\n};\n";

#[cfg(test)]
impl TsigKey {
    pub(super) fn sample() -> TsigKey {
        TsigKey::parse(SAMPLE).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_keys_in_the_form_of_named() {
        assert_eq!(TsigKey::sample().name, "weft.example");
        for (text, expected) in [
            ("key k { algorithm hmac-sha256; secret \"YQ==\"; };", None),
            ("key k { algorithm hmac-md5; secret \"YQ==\"; };", Some("found hmac-md5")),
            ("key k { algorithm hmac-sha256; secret \"?\"; };", Some("the secret is invalid")),
            ("key k { algorithm hmac-sha256; };", Some("it has no `secret`")),
            ("{ algorithm hmac-sha256; secret \"YQ==\"; };", Some("it has no `key`")),
            ("", Some("it has no `algorithm`")),
        ] {
            let reason = TsigKey::parse(text).err();
            let is_expected = match (&reason, expected) {
                (Some(reason), Some(expected)) => reason.contains(expected),
                (reason, expected) => reason.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{text}: {reason:?}");
        }
        let reason = TsigKey::read(Path::new("/nonexistent")).unwrap_err();
        assert!(reason.starts_with("key /nonexistent: No such file"), "{reason}");
    }
}
