//! A stored response, and what decides about its reuse.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{AGE, ETAG, HeaderName, LAST_MODIFIED};
use http::{HeaderValue, StatusCode};
use weft_proto::semantics::caching::status_field::{Handling, member};
use weft_proto::semantics::caching::vary::Selector;
use weft_proto::semantics::caching::{FieldValues, Policy, RequestControl, Reuse, stored_fields};
use weft_proto::semantics::date::parse_http_date;

use crate::cache::key::{Key, tags};
use crate::disk::File;
use crate::message::body::Body;
use crate::message::fields::{Field, Fields};
use crate::message::payload::Payload;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;

/// The field by which caches say what they did (RFC 9211).
pub(super) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Memory of a stored response besides its content, its fields and its key.
const OVERHEAD: usize = 600;

/// Head of a response that may be stored.
#[derive(Clone, Debug)]
pub(super) struct StoredHead {
    pub(super) key: Key,
    pub(super) selector: Selector,
    pub(super) status: StatusCode,
    pub(super) fields: Vec<Field>,
    pub(super) policy: Policy,
}

/// A complete response in the store.
#[derive(Debug)]
pub(super) struct StoredResponse {
    head: StoredHead,
    content: Arc<File>,
    tags: Vec<Box<str>>,
    bytes: usize,
    is_expired: AtomicBool,
    /// Number of its file in the disk tier; 0 without one.
    file_id: AtomicU64,
    /// Recent uses, for eviction.
    pub(super) uses: AtomicU8,
    hits: AtomicU64,
    /// The fields of the last hit. They change once per second.
    hit_fields: Mutex<Option<HitFields>>,
}

/// The fields of a hit, by the values on which they depend.
#[derive(Debug)]
struct HitFields {
    age: u64,
    /// The name of the cache.
    name: Box<str>,
    fields: Fields,
}

/// Order of [`Store::entries`](super::Store::entries).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryOrder {
    /// Most bytes first.
    Largest,
    /// Most hits first.
    Hottest,
}

/// A stored response, as [`Store::entries`](super::Store::entries) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The URL, without the parts of the key that are not in it.
    pub url: String,
    /// The status.
    pub status: StatusCode,
    /// Memory in bytes.
    pub bytes: usize,
    /// Number of requests that it has answered.
    pub hits: u64,
    /// Seconds since it was made or validated.
    pub age: u64,
    /// Seconds for which it is fresh; negative if it is stale.
    pub ttl: i64,
    /// Its tags.
    pub tags: Vec<String>,
}

/// A file of a response, as [`Store::files`](super::Store::files) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileEntry {
    /// The URL, without the parts of the key that are not in it.
    pub url: String,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Seconds since its last use, or since it was written.
    pub idle: u64,
}

impl StoredHead {
    /// Returns the fields in a response that is sent while it arrives.
    pub(super) fn response(&self, body: Body) -> Response {
        let mut response = Response::new(self.status);
        response.headers = Fields::Owned(self.fields.clone());
        response.payload = Payload::Body(body);
        response
    }

    /// Returns true if the response was selected by the same values of a request.
    pub(super) fn replaces(&self, other: &StoredHead) -> bool {
        self.key.extras == other.key.extras && self.selector == other.selector
    }

    /// Returns true if the response may be selected for a request of its URL.
    pub(super) fn matches(&self, key: &Key, request: &RequestHead) -> bool {
        self.key.extras == key.extras && self.selector.matches(request.headers())
    }

    pub(super) fn tags(&self) -> Vec<Box<str>> {
        tags(self.fields.values("cache-tag"), self.fields.values("surrogate-key"))
    }
}

impl StoredResponse {
    pub(super) fn new(head: StoredHead, content: File) -> StoredResponse {
        StoredResponse::with_content(head, Arc::new(content))
    }

    /// Creates a response from its file in the disk tier.
    pub(super) fn from_file(head: StoredHead, content: File, id: u64) -> StoredResponse {
        let response = StoredResponse::with_content(head, Arc::new(content));
        response.set_file_id(id);
        response
    }

    fn with_content(head: StoredHead, content: Arc<File>) -> StoredResponse {
        let fields: usize =
            head.fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum();
        let bytes = OVERHEAD + 2 * fields + head.key.url.len() + head.key.extras.len();
        let tags = head.tags();
        StoredResponse {
            bytes: bytes + content.as_slice().map_or(0, <[u8]>::len),
            head,
            content,
            tags,
            is_expired: AtomicBool::new(false),
            file_id: AtomicU64::new(0),
            uses: AtomicU8::new(0),
            hits: AtomicU64::new(0),
            hit_fields: Mutex::new(None),
        }
    }

    pub(super) fn key(&self) -> &Key {
        &self.head.key
    }

    pub(super) fn head(&self) -> &StoredHead {
        &self.head
    }

    pub(super) fn tags(&self) -> &[Box<str>] {
        &self.tags
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn content(&self) -> &File {
        &self.content
    }

    /// Returns true if the content is not in memory.
    pub(super) fn is_on_disk(&self) -> bool {
        self.content.as_slice().is_none()
    }

    pub(super) fn file_id(&self) -> Option<u64> {
        Some(self.file_id.load(Relaxed)).filter(|id| *id != 0)
    }

    pub(super) fn set_file_id(&self, id: u64) {
        self.file_id.store(id, Relaxed);
    }

    pub(super) fn is_expired(&self) -> bool {
        self.is_expired.load(Relaxed)
    }

    /// Returns true if a later request can gain from the response.
    pub(super) fn is_useful(&self, now: u64) -> bool {
        let is_needless = matches!(
            self.reuse(&RequestControl::default(), now),
            Reuse::Validate { may_replace_error: false, .. }
        );
        !is_needless || self.validators().is_some()
    }

    pub(super) fn content_length(&self) -> u64 {
        self.content.length
    }

    /// Returns true if the response was selected by the same values of a request.
    pub(super) fn replaces(&self, other: &StoredResponse) -> bool {
        self.head.replaces(&other.head)
    }

    pub(super) fn matches(&self, key: &Key, request: &RequestHead) -> bool {
        self.head.matches(key, request)
    }

    /// Makes the response stale.
    pub(super) fn expire(&self) {
        self.is_expired.store(true, Relaxed);
    }

    pub(super) fn reuse(&self, control: &RequestControl, now: u64) -> Reuse {
        if !self.is_expired.load(Relaxed) {
            return self.head.policy.reuse(control, now);
        }
        let mut policy = self.head.policy.clone();
        policy.expire();
        policy.reuse(control, now)
    }

    /// Counts a use.
    pub(super) fn touch(&self) {
        self.hits.fetch_add(1, Relaxed);
        if self.uses.load(Relaxed) < 3 {
            self.uses.fetch_add(1, Relaxed);
        }
    }

    /// Returns the response to a request that the cache answers at the time `now`. The engine
    /// applies preconditions and ranges.
    pub(super) fn hit(&self, name: &str, now: u64) -> Response {
        let age = self.head.policy.age(now);
        let mut hit_fields = self.hit_fields.lock().unwrap_or_else(PoisonError::into_inner);
        let fields = match &*hit_fields {
            Some(hit) if hit.age == age && *hit.name == *name => hit.fields.clone(),
            _ => {
                let fields = self.serialized_fields(name, age, now);
                *hit_fields = Some(HitFields { age, name: name.into(), fields: fields.clone() });
                fields
            }
        };
        drop(hit_fields);
        self.response(fields)
    }

    fn serialized_fields(&self, name: &str, age: u64, now: u64) -> Fields {
        let mut fields = self.head.fields.clone();
        fields.push((AGE, age.into()));
        let ttl = if self.is_expired.load(Relaxed) { 0 } else { self.head.policy.ttl(now) };
        push_status(&mut fields, member(name, Handling::Hit { ttl }));
        Fields::preserialize_complete(fields)
    }

    /// Returns true if a client that has a response from this time has this one, which has no
    /// validator: its `Date` is not later (RFC 9111 §4.3.2).
    pub(super) fn is_unmodified_for(&self, request: &RequestHead, now: u64) -> bool {
        let fields = &self.head.fields;
        let has_validator = fields.first_value(ETAG.as_str()).is_some()
            || fields.first_value(LAST_MODIFIED.as_str()).is_some();
        let headers = request.headers();
        if has_validator || headers.contains("if-none-match") || self.head.status != StatusCode::OK
        {
            return false;
        }
        let time = |value: Option<&[u8]>| value.and_then(|value| parse_http_date(value, now));
        let since = time(headers.get_bytes("if-modified-since"));
        since
            .is_some_and(|since| time(fields.first_value("date")).is_some_and(|date| date <= since))
    }

    /// Returns the response to a request that was forwarded.
    pub(super) fn forwarded(&self, name: &str, handling: Handling, now: u64) -> Response {
        let mut fields = self.head.fields.clone();
        fields.push((AGE, self.head.policy.age(now).into()));
        push_status(&mut fields, member(name, handling));
        self.response(Fields::Owned(fields))
    }

    /// Returns the response as if it had just been received.
    pub(super) fn first_hand(&self) -> Response {
        self.response(Fields::Owned(self.head.fields.clone()))
    }

    fn response(&self, fields: Fields) -> Response {
        let mut response = Response::new(self.head.status);
        response.headers = fields;
        response.payload = match self.head.status {
            StatusCode::OK => Payload::File(self.content.clone()),
            _ => match self.content.in_memory() {
                Some(content) => Payload::Body(content.into()),
                None => Payload::Body((*self.content).clone().into()),
            },
        };
        response
    }

    /// Returns the fields of a conditional request that validates this response (RFC 9111 §4.3.1);
    /// `None` without a validator.
    pub(super) fn validators(&self) -> Option<[(&'static str, &[u8]); 2]> {
        let value = |name: &'static str| self.head.fields.first_value(name).unwrap_or_default();
        let (etag, modified) = (value(ETAG.as_str()), value(LAST_MODIFIED.as_str()));
        (!etag.is_empty() || !modified.is_empty())
            .then_some([("if-none-match", etag), ("if-modified-since", modified)])
    }

    /// Returns true if a 304 with these fields confirms this response: its entity tag, if it has
    /// one, is the same (RFC 9111 §4.3.4).
    pub(super) fn is_confirmed_by(&self, fields: &[Field]) -> bool {
        let opaque = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
        match (fields.first_value(ETAG.as_str()), self.head.fields.first_value(ETAG.as_str())) {
            (Some(received), Some(stored)) => opaque(received) == opaque(stored),
            _ => true,
        }
    }

    /// Returns the fields after an update by those of a 304.
    pub(super) fn updated_fields(&self, received: Vec<Field>) -> Vec<Field> {
        let mut fields = self.head.fields.clone();
        stored_fields::update(&mut fields, received);
        fields
    }

    /// Returns the same content with a new head.
    pub(super) fn updated(&self, fields: Vec<Field>, policy: Policy) -> StoredResponse {
        let head = StoredHead { fields, policy, ..self.head.clone() };
        let updated = StoredResponse::with_content(head, self.content.clone());
        if updated.is_on_disk() {
            // Its file gets the new head.
            updated.file_id.store(self.file_id.load(Relaxed), Relaxed);
        }
        updated.uses.store(self.uses.load(Relaxed), Relaxed);
        updated.hits.store(self.hits.load(Relaxed), Relaxed);
        updated
    }

    pub(super) fn entry(&self, now: u64) -> Entry {
        Entry {
            url: self.head.key.url.to_string(),
            status: self.head.status,
            bytes: self.bytes,
            hits: self.hits.load(Relaxed),
            age: self.head.policy.age(now),
            ttl: if self.is_expired.load(Relaxed) { 0 } else { self.head.policy.ttl(now) },
            tags: self.tags.iter().map(|tag| tag.to_string()).collect(),
        }
    }
}

fn push_status(fields: &mut Vec<Field>, member: String) {
    if let Ok(value) = HeaderValue::try_from(member) {
        fields.push((CACHE_STATUS, value));
    }
}
