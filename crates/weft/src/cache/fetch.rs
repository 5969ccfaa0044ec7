//! A request to the application, on behalf of all requests that wait for its response.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{AGE, DATE};
use http::{HeaderValue, Method, StatusCode};
use weft_proto::headers::Headers;
use weft_proto::semantics::caching::vary::Selector;
use weft_proto::semantics::caching::{Exchange, FieldValues, Policy, stored_fields};
use weft_proto::semantics::date::http_date;

use crate::app::Application;
use crate::cache::disk_tier::Spool;
use crate::cache::flight::{Arrival, Landing, Pilot};
use crate::cache::growing::GrowingBody;
use crate::cache::key::Key;
use crate::cache::settings::Cache;
use crate::cache::statistics::Event;
use crate::cache::stored_response::{StoredHead, StoredResponse};
use crate::client_limit::Client;
use crate::clock::wall;
use crate::message::body::Body;
use crate::message::fields::Field;
use crate::message::payload::{self, Payload};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;

/// Fields of a request that ask for less than the whole response. The cache asks for all of it, and
/// the engine applies them to the response.
const PARTIAL: [&str; 6] =
    ["if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range"];

/// A fetch, and what it is for.
pub(super) struct Fetch {
    pub(super) cache: Cache,
    pub(super) key: Key,
    /// The client whose request is forwarded.
    pub(super) client: Option<Client>,
    /// The stale response that is validated.
    pub(super) stale: Option<Arc<StoredResponse>>,
    /// The stale response may be sent in place of an error.
    pub(super) may_replace_error: bool,
}

/// The result for the request that is forwarded.
pub(super) enum Fetched {
    /// A stored response, and the status of the application's response.
    Stored(Arc<StoredResponse>, StatusCode),
    /// A response that is received, and its body. The body is read from the start of the reception,
    /// so that it may become a passing one.
    Arriving(Arc<Arrival>, Option<Body>),
    /// A response for this client only.
    Private(Response),
}

/// A request to the application, and its response.
struct Exchanged {
    head: RequestHead,
    response: Response,
    requested: u64,
    received: u64,
}

impl Fetch {
    /// Forwards a request. The second value is what [`receive`](Receipt::receive) has to receive
    /// after that. `None` if all participants have left before the response.
    pub(super) async fn forward<A: Application>(
        &self,
        app: &A,
        request: Request,
        pilot: &mut Pilot,
    ) -> Option<(Fetched, Option<Receipt>)> {
        let again = self.stale.as_ref().map(|_| request.without_body());
        let mut exchanged = self.call(app, self.stale.as_deref(), request, pilot).await?;
        if let (StatusCode::NOT_MODIFIED, Some(stale)) = (exchanged.response.status(), &self.stale)
        {
            if let Some(fetched) = self.confirm(stale, &exchanged, pilot) {
                return Some((fetched, None));
            }
            self.cache.store().remove(stale);
            exchanged = self.call(app, None, again?, pilot).await?;
        }
        Some(self.land(exchanged, pilot))
    }

    /// Calls the application for the whole response, or for a 304 that confirms `stale`.
    async fn call<A: Application>(
        &self,
        app: &A,
        stale: Option<&StoredResponse>,
        mut request: Request,
        pilot: &Pilot,
    ) -> Option<Exchanged> {
        let head = request.head().clone();
        let validators = stale.and_then(StoredResponse::validators).unwrap_or_default();
        if is_conditional(head.headers()) || !validators.is_empty() {
            let value = |name: &str| validators.iter().find(|(other, _)| *other == name);
            let fields = PARTIAL.map(|name| (name, value(name).map_or(&b""[..], |field| field.1)));
            // A head with too many fields is forwarded as it is.
            _ = request.replace_fields(&fields);
        }
        let requested = wall::now();
        let call = app.call(request);
        let response = match self.cache.settings().finishes_abandoned {
            true => call.await,
            false => pilot.while_awaited(call).await?,
        };
        Some(Exchanged { head, response, requested, received: wall::now() })
    }

    /// Updates the stale response by a 304; `None` if the 304 is about another response, or if the
    /// response varies by other fields now. Their values belong to the request for the content.
    fn confirm(
        &self,
        stale: &Arc<StoredResponse>,
        exchanged: &Exchanged,
        pilot: &mut Pilot,
    ) -> Option<Fetched> {
        let received = exchanged.response.headers.clone().into_vec();
        if !stale.is_confirmed_by(&received) {
            return None;
        }
        let ages: Vec<Field> = received.iter().filter(|(name, _)| *name == AGE).cloned().collect();
        let fields = stale.updated_fields(received);
        if !stale.head().selector.has_fields_of(&fields) {
            return None;
        }
        self.cache.count(Event::Revalidated);
        let policy = self.policy(exchanged, stale.head().status, &[&fields[..], &ages].concat());
        let store = self.cache.store();
        let Some(policy) = policy else {
            store.remove(stale);
            pilot.land(Landing::Private);
            let response = stale.first_hand();
            return Some(Fetched::Private(response));
        };
        let mut fields = fields;
        stored_fields::retain_stored(&mut fields, policy.excluded_fields());
        let updated = Arc::new(stale.updated(fields, policy));
        if pilot.may_store() {
            store.insert(updated.clone());
        }
        pilot.land(Landing::Stored(updated.clone()));
        Some(Fetched::Stored(updated, StatusCode::NOT_MODIFIED))
    }

    fn policy(
        &self,
        exchanged: &Exchanged,
        status: StatusCode,
        fields: &Vec<Field>,
    ) -> Option<Policy> {
        let exchange = Exchange {
            method: &Method::GET,
            request: exchanged.head.headers(),
            status,
            response: fields,
            requested: exchanged.requested,
            received: exchanged.received,
        };
        Policy::of(&exchange, &self.cache.settings().defaults()).ok()
    }

    /// Decides for whom a response is, and ends the wait of all participants. If the application
    /// has failed, the next participant is forwarded instead.
    fn land(&self, exchanged: Exchanged, pilot: &mut Pilot) -> (Fetched, Option<Receipt>) {
        let status = exchanged.response.status();
        let (store, hash) = (self.cache.store(), self.cache.store().hash(&self.key.url));
        if is_failure(status)
            && let Some(stale) = self.stale.as_ref().filter(|_| self.may_replace_error)
        {
            pilot.land(Landing::Stored(stale.clone()));
            return (Fetched::Stored(stale.clone(), status), None);
        }
        let Some(head) = self.storable_head(&exchanged) else {
            if !is_failure(status) {
                if let Some(stale) = &self.stale {
                    store.remove(stale);
                }
                if is_private(&exchanged) {
                    store.admission().set_private(hash, exchanged.received);
                }
                pilot.land(Landing::Private);
            }
            return (Fetched::Private(exchanged.response), None);
        };
        store.admission().set_shared(hash);
        let length = exchanged.response.length();
        let body = match payload::to_body(exchanged.response.payload).0.into_bytes() {
            Ok(content) => {
                let memory = store.memory();
                let content = memory.file(memory.hold(content.to_vec()));
                let stored = Arc::new(StoredResponse::new(head, content));
                if pilot.may_store() {
                    store.insert(stored.clone());
                }
                pilot.land(Landing::Stored(stored.clone()));
                return (Fetched::Stored(stored, status), None);
            }
            Err(body) => body,
        };
        let arrival = Arc::new(Arrival {
            head,
            body: Arc::new(GrowingBody::new(length, store.memory().clone())),
        });
        let reader = arrival.body.reader(pilot.participant());
        pilot.land(Landing::Arriving(arrival.clone()));
        let (cache, client) = (self.cache.clone(), self.client);
        let receipt = Receipt { cache, client, arrival: arrival.clone(), body };
        (Fetched::Arriving(arrival, reader), Some(receipt))
    }

    /// Returns the head of a response that may be stored.
    fn storable_head(&self, exchanged: &Exchanged) -> Option<StoredHead> {
        let Exchanged { head, response, .. } = exchanged;
        let max_bytes = self.cache.store().max_content_bytes();
        let max_bytes = max_bytes.min(self.cache.settings().max_object_bytes as u64);
        let is_too_large = response.length().is_some_and(|length| length > max_bytes);
        let is_upgrade = matches!(response.payload, Payload::Upgrade(_));
        let is_ours = response.error().is_some()
            || response.is_generated_error && response.status().is_server_error();
        if is_too_large || is_upgrade || is_ours || response.has_invalid_field {
            return None;
        }
        let mut fields = response.headers.clone().into_vec();
        let policy = self.policy(exchanged, response.status(), &fields)?;
        let selector = Selector::of(head.headers(), &fields);
        stored_fields::retain_stored(&mut fields, policy.excluded_fields());
        if fields.first_value(DATE.as_str()).is_none() {
            let date = http_date(UNIX_EPOCH + Duration::from_secs(exchanged.received));
            fields.extend(HeaderValue::try_from(date).ok().map(|date| (DATE, date)));
        }
        let (key, status) = (self.key.clone(), response.status());
        Some(StoredHead { key, selector, status, fields, policy })
    }
}

/// A response whose body arrives.
pub(super) struct Receipt {
    cache: Cache,
    client: Option<Client>,
    arrival: Arc<Arrival>,
    body: Body,
}

impl Receipt {
    /// Receives the body, and stores the response at its end.
    pub(super) async fn receive(mut self, pilot: &Pilot) {
        let (cache, arrival) = (self.cache.clone(), self.arrival.clone());
        let mut receiving = Receiving { cache: &cache, arrival: &arrival, received: 0 };
        // Once the body is too large for the memory.
        let mut passing = None;
        loop {
            // A body that nobody reads is received for the store.
            let is_needed = cache.settings().finishes_abandoned
                && !matches!(passing, Some(Passing { spool: None }));
            let chunk = match is_needed {
                true => self.body.chunk().await,
                false => match pilot.while_awaited(self.body.chunk()).await {
                    Some(chunk) => chunk,
                    None => return,
                },
            };
            let piece = match chunk {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(_) => return,
            };
            if !receiving.has_room(piece.len()) && passing.is_none() {
                pilot.close();
                passing = Some(receiving.pass(self.client).await);
            }
            arrival.body.push(&piece);
            if let Some(passing) = &mut passing {
                passing.push(&cache, receiving.received, vec![piece]).await;
                let has_readers = arrival.body.readers_follow().await;
                let is_kept = is_needed && passing.spool.is_some();
                if !has_readers && !is_kept {
                    return;
                }
            }
        }
        if let Some(content) = arrival.body.finish().filter(|_| pilot.may_store()) {
            let content = cache.store().memory().file(content);
            cache.store().insert(Arc::new(StoredResponse::new(arrival.head.clone(), content)));
        }
        if let Some(spool) = passing.and_then(|passing| passing.spool)
            && receiving.is_whole()
            && pilot.may_store()
            && spool.finish().await
        {
            cache.store().forget_replaced(&arrival.head);
        }
        pilot.close();
    }
}

/// A body that is too large for the memory, and its file.
struct Passing {
    spool: Option<Spool>,
}

impl Passing {
    /// Appends pieces to the file, unless the body of now `received` bytes is too large.
    async fn push(&mut self, cache: &Cache, received: usize, pieces: Vec<Bytes>) {
        let Some(spool) = &mut self.spool else { return };
        let is_small = received <= cache.settings().max_object_bytes;
        if !is_small || !spool.push(pieces).await {
            self.spool = None;
        }
    }
}

/// The content of a response that is received. If its end is not reached, its readers get an error.
struct Receiving<'a> {
    cache: &'a Cache,
    arrival: &'a Arrival,
    received: usize,
}

impl Receiving<'_> {
    /// Returns true if a further piece fits into memory, and the body into its limit.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.received += bytes;
        let store = self.cache.store();
        let max_bytes = self.cache.settings().max_object_bytes.min(store.max_response_bytes());
        let declared = self.arrival.body.declared_length().unwrap_or(0);
        declared.max(self.received as u64) <= max_bytes as u64 && store.memory().has_room(bytes)
    }

    /// Returns true if the body has the length that its head declares.
    fn is_whole(&self) -> bool {
        let declared = self.arrival.body.declared_length();
        declared.is_none_or(|declared| declared == self.received as u64)
    }

    /// Lets the body pass. It is written to a file if there is room.
    async fn pass(&self, client: Option<Client>) -> Passing {
        let declared = self.arrival.body.declared_length();
        let spool = self.cache.store().spool(&self.arrival.head, declared, client);
        let mut passing = Passing { spool };
        passing.push(self.cache, self.received, self.arrival.body.pass()).await;
        passing
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.arrival.body.fail();
    }
}

/// Returns true if a request asks for less than the whole response.
pub(super) fn is_conditional(headers: &Headers) -> bool {
    PARTIAL.iter().any(|name| headers.contains(name))
}

/// Returns true if other requests of the URL need not wait for each other: its response is for one
/// client by its own nature. A client cannot bring that about by credentials or by an error.
fn is_private(exchanged: &Exchanged) -> bool {
    let status = exchanged.response.status();
    let has_credentials = exchanged.head.headers().contains("authorization");
    (status.is_success() || status.is_redirection()) && !has_credentials
}

/// Errors of an application that a stale response may replace (RFC 5861 §4).
fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
