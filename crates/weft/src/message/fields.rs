//! The header fields of a response. The fields of a cached file are serialized once and shared by
//! all its responses; the fields of a forwarded message stay in the buffer of its head.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, SERVER, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use weft_proto::headers::Headers;
pub(crate) use weft_proto::http1::compose::Field;
use weft_proto::http1::compose::{self, FieldSources};

/// The fields of a response, in one of four representations.
#[derive(Clone, Debug)]
pub(crate) enum Fields {
    /// A list owned by the response.
    Owned(Vec<Field>),
    /// Static fields, serialized at compile time.
    Static(&'static StaticFields),
    /// Shared fields, serialized once.
    Preserialized(Arc<PreserializedFields>),
    /// The fields of a forwarded message.
    Forwarded(Box<ForwardedFields>),
}

/// Static fields used by most responses of applications.
#[derive(Debug)]
pub(crate) struct StaticFields {
    list: [Field; 1],
    /// The serialized field line, with its CRLF.
    line: &'static [u8],
}

pub(crate) static TEXT: StaticFields = StaticFields {
    list: [(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))],
    line: b"content-type: text/plain; charset=utf-8\r\n",
};

pub(crate) static HTML: StaticFields = StaticFields {
    list: [(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))],
    line: b"content-type: text/html; charset=utf-8\r\n",
};

pub(crate) static BYTES: StaticFields = StaticFields {
    list: [(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))],
    line: b"content-type: application/octet-stream\r\n",
};

#[cfg(any(feature = "json", feature = "tower"))]
pub(crate) static JSON: StaticFields = StaticFields {
    list: [(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
    line: b"content-type: application/json\r\n",
};

/// Fields that are serialized once and shared by several responses.
#[derive(Debug)]
pub(crate) struct PreserializedFields {
    list: Vec<Field>,
    /// Number of fields at the start of `list` that are not among the lines.
    #[cfg(feature = "cache")]
    unserialized: usize,
    /// The serialized field lines, each with its CRLF.
    lines: Vec<u8>,
}

impl PreserializedFields {
    /// The fields that are not among the lines.
    fn unserialized(&self) -> &[Field] {
        #[cfg(feature = "cache")]
        return &self.list[..self.unserialized];
        #[cfg(not(feature = "cache"))]
        &[]
    }
}

/// Capacity for fields that are added to the fields of a response.
const ADDED_CAPACITY: usize = 4;

/// The fields of a forwarded message, and the fields added after them.
#[derive(Clone, Debug)]
pub(crate) struct ForwardedFields {
    headers: Headers,
    /// The added fields; usually one, `Via`.
    added: SmallVec<[Field; 1]>,
    /// The list of all fields. Built on demand, because writing the fields does not need it.
    list: OnceLock<Vec<Field>>,
}

impl ForwardedFields {
    fn list(&self) -> &Vec<Field> {
        self.list.get_or_init(|| {
            let mut list = Vec::with_capacity(self.headers.len() + self.added.len());
            list.extend(self.headers.iter_shared().filter_map(|(name, value)| {
                let name = HeaderName::from_bytes(name).ok()?;
                Some((name, HeaderValue::from_maybe_shared(value).ok()?))
            }));
            list.extend_from_slice(&self.added);
            list
        })
    }
}

impl Fields {
    /// Serializes fields that several responses share. Fields that the engine writes are omitted:
    /// the message framing, `date` and `server`.
    pub(crate) fn preserialize(self) -> Fields {
        let engine_fields = [CONNECTION, CONTENT_LENGTH, DATE, SERVER, TRANSFER_ENCODING];
        let mut list = self.into_vec();
        list.retain(|(name, _)| !engine_fields.contains(name));
        list.shrink_to_fit();
        let mut lines = Vec::new();
        for (name, value) in &list {
            compose::field(&mut lines, name, value);
        }
        lines.shrink_to_fit();
        Fields::Preserialized(Arc::new(PreserializedFields {
            list,
            #[cfg(feature = "cache")]
            unserialized: 0,
            lines,
        }))
    }

    /// Serializes fields as [`preserialize`](Fields::preserialize), with `date` and `server`, which
    /// the engine then does not write.
    #[cfg(feature = "cache")]
    pub(crate) fn preserialize_complete(mut list: Vec<Field>) -> Fields {
        list.retain(|(name, _)| ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name));
        list.sort_by_key(|(name, _)| *name != DATE && *name != SERVER);
        let is_engine_field = |field: &Field| field.0 == DATE || field.0 == SERVER;
        let unserialized = list.partition_point(is_engine_field);
        let mut lines = Vec::new();
        for (name, value) in &list[unserialized..] {
            compose::field(&mut lines, name, value);
        }
        Fields::Preserialized(Arc::new(PreserializedFields { list, unserialized, lines }))
    }

    /// Returns the fields in the form in which they are written.
    #[inline]
    pub(crate) fn sources(&self) -> FieldSources<'_> {
        match self {
            Fields::Owned(list) => FieldSources { forwarded: None, list, lines: b"" },
            Fields::Static(common) => {
                FieldSources { forwarded: None, list: &[], lines: common.line }
            }
            Fields::Preserialized(kept) => {
                FieldSources { forwarded: None, list: kept.unserialized(), lines: &kept.lines }
            }
            Fields::Forwarded(forwarded) => FieldSources {
                forwarded: Some(&forwarded.headers),
                list: &forwarded.added,
                lines: b"",
            },
        }
    }

    /// Like [`find`](Fields::find), for the fields that frame a message. Serialized fields never
    /// contain them and are not searched.
    #[inline]
    pub(crate) fn find_framing<'a>(
        &'a self,
        name: &'a HeaderName,
        predicate: impl FnMut(&[u8]) -> bool,
    ) -> Option<&'a [u8]> {
        match self {
            Fields::Static(_) | Fields::Preserialized(_) => None,
            Fields::Owned(_) | Fields::Forwarded(_) => self.find(name, predicate),
        }
    }

    /// Returns the value of the first field with this name for which `predicate` returns true.
    #[inline]
    pub(crate) fn find<'a>(
        &'a self,
        name: &'a HeaderName,
        mut predicate: impl FnMut(&[u8]) -> bool,
    ) -> Option<&'a [u8]> {
        let list: &[Field] = match self {
            Fields::Owned(list) => list,
            Fields::Static(common) => &common.list,
            Fields::Preserialized(kept) => &kept.list,
            Fields::Forwarded(forwarded) => {
                let mut values = forwarded.headers.get_all(name.as_str());
                if let Some(value) = values.find(|value| predicate(value)) {
                    return Some(value);
                }
                &forwarded.added
            }
        };
        let found = list
            .iter()
            .find(|(field_name, value)| field_name == name && predicate(value.as_bytes()));
        found.map(|(_, value)| value.as_bytes())
    }

    /// Adds a field.
    #[inline]
    pub(crate) fn push(&mut self, field: Field) {
        match self {
            Fields::Forwarded(forwarded) => {
                forwarded.list.take();
                if forwarded.added.len() == forwarded.added.capacity() {
                    forwarded.added.reserve(ADDED_CAPACITY);
                }
                forwarded.added.push(field);
            }
            _ => self.to_mut().push(field),
        }
    }

    /// Sets a field: it takes the place of the first one with its name, and the others are removed.
    #[inline]
    pub(crate) fn set(&mut self, field: Field) {
        if let Fields::Owned(list) = self {
            let Some(first) = list.iter().position(|(name, _)| *name == field.0) else {
                return list.push(field);
            };
            let mut is_first = true;
            list.retain(|(name, _)| *name != field.0 || std::mem::take(&mut is_first));
            list[first] = field;
        } else {
            self.remove(field.0.as_str());
            self.push(field);
        }
    }

    /// Returns the static fields that consist of this field, if there are any.
    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn find_static(
        name: &HeaderName,
        value: &HeaderValue,
    ) -> Option<&'static StaticFields> {
        if *name != CONTENT_TYPE {
            return None;
        }
        [&TEXT, &HTML, &JSON].into_iter().find(|it| it.list[0].1 == *value)
    }

    /// Removes all fields with this name. The fields of a forwarded message stay where they are.
    pub(crate) fn remove(&mut self, name: &str) {
        let has_name = |field: &Field| field.0.as_str().eq_ignore_ascii_case(name);
        match self {
            Fields::Forwarded(forwarded) => {
                forwarded.list.take();
                forwarded.headers.remove(name);
                if forwarded.added.iter().any(has_name) {
                    forwarded.added.retain(|field| !has_name(field));
                }
            }
            _ if self.iter().any(has_name) => self.to_mut().retain(|field| !has_name(field)),
            _ => {}
        }
    }

    /// Adds the fields of another message. They are not copied if the list is empty.
    #[inline]
    pub(crate) fn forward(&mut self, headers: Headers) {
        let forwarded = ForwardedFields { headers, added: SmallVec::new(), list: OnceLock::new() };
        match self {
            Fields::Owned(list) if list.is_empty() => {
                *self = Fields::Forwarded(Box::new(forwarded))
            }
            _ => self.to_mut().extend_from_slice(forwarded.list()),
        }
    }

    /// Returns a mutable list, after copying the fields into it if necessary.
    pub(crate) fn to_mut(&mut self) -> &mut Vec<Field> {
        match self {
            Fields::Owned(_) => {}
            Fields::Static(common) => *self = Fields::Owned(with_capacity(&common.list)),
            Fields::Preserialized(kept) => *self = Fields::Owned(with_capacity(&kept.list)),
            Fields::Forwarded(forwarded) => *self = Fields::Owned(forwarded.list().clone()),
        }
        match self {
            Fields::Owned(list) => list,
            _ => unreachable!("the list was converted to Owned"),
        }
    }

    pub(crate) fn into_vec(mut self) -> Vec<Field> {
        std::mem::take(self.to_mut())
    }
}

/// Copies a list to which fields will be added.
fn with_capacity(list: &[Field]) -> Vec<Field> {
    let mut copy = Vec::with_capacity(list.len() + ADDED_CAPACITY);
    copy.extend_from_slice(list);
    copy
}

impl Default for Fields {
    fn default() -> Fields {
        Fields::Owned(Vec::new())
    }
}

impl Deref for Fields {
    type Target = [Field];

    fn deref(&self) -> &[Field] {
        match self {
            Fields::Owned(list) => list,
            Fields::Static(common) => &common.list,
            Fields::Preserialized(kept) => &kept.list,
            Fields::Forwarded(forwarded) => forwarded.list(),
        }
    }
}
