//! The fields of a response. Those of a file that is kept are laid out for the wire once,
//! and shared by all responses with it; those that come from another message stay in its head.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, SERVER, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::proto::headers::Headers;
pub(crate) use crate::proto::http1::compose::Field;
use crate::proto::http1::compose::{self, ToWrite};

/// A short list of fields.
#[derive(Clone, Debug)]
pub(crate) enum Fields {
    Own(Vec<Field>),
    Common(&'static Common),
    Kept(Arc<Kept>),
    Passed(Box<Passed>),
}

/// The fields of most responses that an application makes, laid out beforehand.
#[derive(Debug)]
pub(crate) struct Common {
    list: [Field; 1],
    /// The same, with its CRLF.
    line: &'static [u8],
}

pub(crate) static TEXT: Common = Common {
    list: [(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))],
    line: b"content-type: text/plain; charset=utf-8\r\n",
};

pub(crate) static HTML: Common = Common {
    list: [(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))],
    line: b"content-type: text/html; charset=utf-8\r\n",
};

#[derive(Debug)]
pub(crate) struct Kept {
    list: Vec<Field>,
    /// The same, each with its CRLF.
    lines: Vec<u8>,
}

/// The fields of another message, and others behind them.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    headers: Headers,
    /// Mostly one: `Via`.
    more: SmallVec<[Field; 1]>,
    /// All of them, for who asks for the list: to write them it is not needed.
    list: OnceLock<Vec<Field>>,
}

impl Passed {
    fn list(&self) -> &Vec<Field> {
        self.list.get_or_init(|| {
            let mut list = Vec::with_capacity(self.headers.len() + self.more.len());
            list.extend(self.headers.shared().filter_map(|(name, value)| {
                let name = HeaderName::from_bytes(name).ok()?;
                Some((name, HeaderValue::from_maybe_shared(value).ok()?))
            }));
            list.extend_from_slice(&self.more);
            list
        })
    }
}

impl Fields {
    /// Lays out fields that will be sent again and again. What the engine has a say in is
    /// left out: the message's framing, its date and the server's name.
    pub(crate) fn keep(self) -> Fields {
        let ours = [CONNECTION, CONTENT_LENGTH, DATE, SERVER, TRANSFER_ENCODING];
        let mut list = self.into_vec();
        list.retain(|(name, _)| !ours.contains(name));
        let mut lines = Vec::new();
        for (name, value) in &list {
            compose::field(&mut lines, name, value);
        }
        Fields::Kept(Arc::new(Kept { list, lines }))
    }

    pub(crate) fn to_write(&self) -> ToWrite<'_> {
        match self {
            Fields::Own(list) => ToWrite { passed: None, list, lines: b"" },
            Fields::Common(common) => ToWrite { passed: None, list: &[], lines: common.line },
            Fields::Kept(kept) => ToWrite { passed: None, list: &[], lines: &kept.lines },
            Fields::Passed(passed) => {
                ToWrite { passed: Some(&passed.headers), list: &passed.more, lines: b"" }
            }
        }
    }

    /// The same as [`find`](Fields::find) for what is said of the connection or of the message's
    /// length: fields that are laid out leave that to the engine, and are not searched.
    pub(crate) fn find_framing<'a>(
        &'a self,
        name: &'a HeaderName,
        is_it: impl FnMut(&[u8]) -> bool,
    ) -> Option<&'a [u8]> {
        match self {
            Fields::Common(_) | Fields::Kept(_) => None,
            Fields::Own(_) | Fields::Passed(_) => self.find(name, is_it),
        }
    }

    /// The value of the first field of that name for whose value it is true.
    pub(crate) fn find<'a>(
        &'a self,
        name: &'a HeaderName,
        mut is_it: impl FnMut(&[u8]) -> bool,
    ) -> Option<&'a [u8]> {
        let list: &[Field] = match self {
            Fields::Own(list) => list,
            Fields::Common(common) => &common.list,
            Fields::Kept(kept) => &kept.list,
            Fields::Passed(passed) => {
                let mut values = passed.headers.get_all(name.as_str());
                if let Some(value) = values.find(|value| is_it(value)) {
                    return Some(value);
                }
                &passed.more
            }
        };
        let found = list.iter().find(|(known, value)| known == name && is_it(value.as_bytes()));
        found.map(|(_, value)| value.as_bytes())
    }

    pub(crate) fn push(&mut self, field: Field) {
        match self {
            Fields::Passed(passed) => {
                passed.list.take();
                passed.more.push(field);
            }
            _ => self.to_mut().push(field),
        }
    }

    /// Adds the fields of another message. As long as they are the first, they stay where
    /// they are.
    pub(crate) fn pass(&mut self, headers: Headers) {
        let passed = Passed { headers, more: SmallVec::new(), list: OnceLock::new() };
        match self {
            Fields::Own(list) if list.is_empty() => *self = Fields::Passed(Box::new(passed)),
            _ => self.to_mut().extend_from_slice(passed.list()),
        }
    }

    /// The list, to be changed.
    pub(crate) fn to_mut(&mut self) -> &mut Vec<Field> {
        match self {
            Fields::Own(_) => {}
            Fields::Common(common) => *self = Fields::Own(common.list.to_vec()),
            Fields::Kept(kept) => *self = Fields::Own(kept.list.clone()),
            Fields::Passed(passed) => *self = Fields::Own(passed.list().clone()),
        }
        match self {
            Fields::Own(list) => list,
            _ => unreachable!("it was made our own"),
        }
    }

    pub(crate) fn into_vec(mut self) -> Vec<Field> {
        std::mem::take(self.to_mut())
    }
}

impl Default for Fields {
    fn default() -> Fields {
        Fields::Own(Vec::new())
    }
}

impl Deref for Fields {
    type Target = [Field];

    fn deref(&self) -> &[Field] {
        match self {
            Fields::Own(list) => list,
            Fields::Common(common) => &common.list,
            Fields::Kept(kept) => &kept.list,
            Fields::Passed(passed) => passed.list(),
        }
    }
}
