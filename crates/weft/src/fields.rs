//! The fields of a response. Those of a file that is kept are laid out for the wire once,
//! and shared by all responses with it.

use std::ops::Deref;
use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, SERVER, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue};

use crate::h1::compose;

pub(crate) type Field = (HeaderName, HeaderValue);

/// A short list of fields.
#[derive(Clone, Debug)]
pub(crate) enum Fields {
    Own(Vec<Field>),
    Kept(Arc<Kept>),
}

#[derive(Debug)]
pub(crate) struct Kept {
    list: Vec<Field>,
    /// The same, each with its CRLF.
    lines: Vec<u8>,
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

    /// The fields that are still to be written, and the lines of those that are laid out.
    pub(crate) fn to_write(&self) -> (&[Field], &[u8]) {
        match self {
            Fields::Own(list) => (list, b""),
            Fields::Kept(kept) => (&[], &kept.lines),
        }
    }

    /// The list, to be changed.
    pub(crate) fn to_mut(&mut self) -> &mut Vec<Field> {
        if let Fields::Kept(kept) = self {
            *self = Fields::Own(kept.list.clone());
        }
        match self {
            Fields::Own(list) => list,
            Fields::Kept(_) => unreachable!("it was made our own"),
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
            Fields::Kept(kept) => &kept.list,
        }
    }
}
