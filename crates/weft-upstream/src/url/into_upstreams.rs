//! Values that name the upstreams of a proxy.

use crate::base::invalid_settings::InvalidSettings;
use crate::url::member::UpstreamMember;
use crate::url::upstream_url::UpstreamUrl;

/// A value that names the upstreams of a proxy: a text, or a list of texts. A text has a URL such
/// as `http://127.0.0.1:3000` or `unix:/run/app.sock`, behind which
/// [options](crate::ProxySettings::new) may follow.
///
/// | value | example |
/// | --- | --- |
/// | one upstream | `"http://127.0.0.1:3000"`, a `String` |
/// | several upstreams | `["http://app:3000 weight=3", "http://b:3000 backup"]`, a slice, a `Vec` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no upstreams",
    label = "expected a URL or a list of URLs here",
    note = "upstreams are a text such as `http://127.0.0.1:3000`, or an array, a slice or a `Vec` \
            of such texts; collect another iterator into a `Vec`"
)]
pub trait IntoUpstreams {
    /// Parses the value.
    ///
    /// # Errors
    /// If there is no URL, or one of them is invalid.
    fn into_upstreams(self) -> Result<Vec<UpstreamMember>, InvalidSettings>;
}

impl IntoUpstreams for &str {
    fn into_upstreams(self) -> Result<Vec<UpstreamMember>, InvalidSettings> {
        Ok(parse_upstreams(self)?)
    }
}

impl IntoUpstreams for String {
    fn into_upstreams(self) -> Result<Vec<UpstreamMember>, InvalidSettings> {
        self.as_str().into_upstreams()
    }
}

impl IntoUpstreams for &String {
    fn into_upstreams(self) -> Result<Vec<UpstreamMember>, InvalidSettings> {
        self.as_str().into_upstreams()
    }
}

impl<T: AsRef<str>> IntoUpstreams for &[T] {
    fn into_upstreams(self) -> Result<Vec<UpstreamMember>, InvalidSettings> {
        let texts: Vec<&str> = self.iter().map(AsRef::as_ref).collect();
        Ok(parse_upstreams(&texts.join(" "))?)
    }
}

impl<T: AsRef<str>, const N: usize> IntoUpstreams for [T; N] {
    fn into_upstreams(self) -> Result<Vec<UpstreamMember>, InvalidSettings> {
        self.as_slice().into_upstreams()
    }
}

impl<T: AsRef<str>, const N: usize> IntoUpstreams for &[T; N] {
    fn into_upstreams(self) -> Result<Vec<UpstreamMember>, InvalidSettings> {
        self.as_slice().into_upstreams()
    }
}

impl<T: AsRef<str>> IntoUpstreams for Vec<T> {
    fn into_upstreams(self) -> Result<Vec<UpstreamMember>, InvalidSettings> {
        self.as_slice().into_upstreams()
    }
}

impl<T: AsRef<str>> IntoUpstreams for &Vec<T> {
    fn into_upstreams(self) -> Result<Vec<UpstreamMember>, InvalidSettings> {
        self.as_slice().into_upstreams()
    }
}

/// Parses URLs separated by white space, each with its options behind it.
pub(crate) fn parse_upstreams(text: &str) -> Result<Vec<UpstreamMember>, String> {
    let members = UpstreamMember::parse_list(text, UpstreamUrl::parse_member)?;
    if members.is_empty() {
        return Err("expected the URL of an upstream, such as http://127.0.0.1:3000/".into());
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row: a value, and the number of upstreams that it names; `None`: invalid.
    #[test]
    fn texts_and_lists_name_upstreams() {
        let text = String::from("http://a:1");
        let list = vec!["http://a:1", "http://b:1 backup"];
        for (upstreams, expected) in [
            ("http://a:1".into_upstreams(), Some(1)),
            ("http://a:1 weight=2".into_upstreams(), Some(1)),
            ((&text).into_upstreams(), Some(1)),
            ([&text].into_upstreams(), Some(1)),
            ((&list).into_upstreams(), Some(2)),
            (list.as_slice().into_upstreams(), Some(2)),
            ((&["http://a:1", "http://b:1"]).into_upstreams(), Some(2)),
            (list.into_upstreams(), Some(2)),
            (text.into_upstreams(), Some(1)),
            ("".into_upstreams(), None),
            (<[&str; 0]>::default().into_upstreams(), None),
            (["http://a:1", "b"].into_upstreams(), None),
        ] {
            assert_eq!(upstreams.ok().map(|members| members.len()), expected);
        }
    }
}
