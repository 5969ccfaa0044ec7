//! An application behind a cache.

use http::header::{AGE, CONTENT_LOCATION, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::timeout;
use weft_proto::semantics::caching::status_field::{Forwarded, Handling, member};
use weft_proto::semantics::caching::vary::selecting_value;
use weft_proto::semantics::caching::{RequestControl, Reuse};

use crate::app::Application;
use crate::cache::fetch::{Fetch, Fetched, is_conditional};
use crate::cache::flight::{Arrival, Landing, Participant, Pilot, Turn};
use crate::cache::key::{self, Key};
use crate::cache::settings::{Cache, RequestPredicate};
use crate::cache::statistics::Event;
use crate::cache::store::Found;
use crate::cache::stored_response::{CACHE_STATUS, StoredResponse};
use crate::client_limit::Client;
use crate::clock::wall;
use crate::error::Error;
use crate::message::body::Body;
use crate::message::representation;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;

/// An application behind a [`Cache`], as [`Cache::over`] makes it.
#[derive(Clone, Debug)]
pub struct Cached<A> {
    cache: Cache,
    app: A,
}

/// A request that the cache may answer.
#[derive(Clone)]
struct Lookup {
    key: Key,
    control: RequestControl,
    head: RequestHead,
    client: Option<Client>,
}

/// The reason for a fetch, and the stale response that it validates.
struct Need {
    reason: Forwarded,
    stale: Option<Arc<StoredResponse>>,
    may_replace_error: bool,
}

impl Cache {
    /// Puts the cache in front of an application. It makes requests of its own: to validate a
    /// response in the background, and to finish what a client has abandoned. So it needs the
    /// application itself, not only a reference as [`Middleware`](crate::Middleware) gets it.
    pub fn over<A: Application + Clone + 'static>(&self, app: A) -> Cached<A> {
        Cached { cache: self.clone(), app }
    }
}

impl<A: Application + Clone + 'static> Cached<A> {
    /// Answers a request, without a large future for a fresh response in memory.
    async fn handle(&self, mut request: Request) -> Response {
        let (key, control) = match self.lookup(&mut request) {
            Ok(found) => found,
            Err(reason) => return Box::pin(self.pass(request, reason)).await,
        };
        let now = wall::now();
        let found = self.cache.store().find(&key, request.head());
        if let Found::Response(stored) = &found
            && let Reuse::Fresh { .. } = stored.reuse(&control, now)
        {
            return self.hit(stored, request.head(), Event::Hit, now);
        }
        let (head, client) = (request.head().clone(), Client::of_request(&request, &[]));
        let lookup = Lookup { key, control, head, client };
        Box::pin(self.find_or_fetch(request, lookup, found)).await
    }

    /// Answers a request for which the memory has no fresh response.
    async fn find_or_fetch(&self, request: Request, lookup: Lookup, found: Found) -> Response {
        let now = wall::now();
        let need = match self.find_file(&lookup, found).await {
            Found::Nothing => Need::miss(Forwarded::UriMiss),
            Found::OtherVariants => Need::miss(Forwarded::VaryMiss),
            Found::Response(stored) => match stored.reuse(&lookup.control, now) {
                Reuse::Fresh { .. } => return self.hit(&stored, &lookup.head, Event::Hit, now),
                Reuse::WhileRevalidating { .. } => {
                    let response = self.hit(&stored, &lookup.head, Event::Stale, now);
                    if is_get(&lookup.head) {
                        self.revalidate(request, lookup, Need::validation(stored, true, now));
                    }
                    return response;
                }
                Reuse::Validate { may_replace_error, .. } => {
                    Need::validation(stored, may_replace_error, now)
                }
            },
        };
        self.fetch(request, lookup, need).await
    }

    /// Looks for a stored response in files, if the memory has none.
    async fn find_file(&self, lookup: &Lookup, found: Found) -> Found {
        let (store, Lookup { key, head, client, .. }) = (self.cache.store(), lookup);
        if matches!(found, Found::Response(_)) || !store.has_file(key) {
            return found;
        }
        // A disk that hangs delays requests no longer than another request does.
        let load = Box::pin(store.load(key, head, *client));
        match timeout(self.cache.settings().collapse_timeout, load).await {
            Ok(Some(response)) => Found::Response(response),
            _ => found,
        }
    }

    /// Returns the key of a request, and the responses that it accepts, unless it has to pass the
    /// cache.
    fn lookup(&self, request: &mut Request) -> Result<(Key, RequestControl), Forwarded> {
        let is_get_or_head = |method: &Method| matches!(*method, Method::GET | Method::HEAD);
        if !is_get_or_head(request.method()) || !is_get_or_head(request.received_method()) {
            return Err(Forwarded::Method);
        }
        let settings = self.cache.settings();
        let has_body = request.body().length() != Some(0);
        let is_bypassed = applies(&settings.bypass, request);
        if has_body || is_bypassed || request.headers().contains("upgrade") {
            return Err(Forwarded::Bypass);
        }
        let key = Key::of(request.scheme(), request.head(), &settings.key);
        let mut control = match settings.ignores_client {
            true => RequestControl::default(),
            false => RequestControl::of(request.headers()),
        };
        control.is_no_cache |= applies(&settings.refresh, request);
        control.is_no_store |= applies(&settings.no_store, request);
        Ok((key.ok_or(Forwarded::Bypass)?, control))
    }

    fn hit(&self, stored: &StoredResponse, head: &RequestHead, event: Event, now: u64) -> Response {
        stored.touch();
        self.cache.count(event);
        self.cache.count_age(stored.head().policy.age(now));
        let response = stored.hit(&self.cache.settings().name, now);
        if head.headers().contains("if-modified-since") && stored.is_unmodified_for(head, now) {
            return representation::not_modified(response);
        }
        self.cache.count_sent(stored.content_length());
        response
    }

    /// Passes a request to the application. A change of a resource removes its responses.
    async fn pass(&self, request: Request, reason: Forwarded) -> Response {
        self.cache.count(Event::Bypassed);
        let changed = match request.method().is_safe() {
            true => None,
            false => Key::of(request.scheme(), request.head(), &self.cache.settings().key),
        };
        let response = self.app.call(request).await;
        if let Some(key) = changed {
            self.invalidate(&key.url, &response);
        }
        self.forwarded(response, Handling::passed(reason))
    }

    /// Removes the responses of what a request has changed (RFC 9111 §4.4).
    fn invalidate(&self, url: &str, response: &Response) {
        if !response.status().is_success() && !response.status().is_redirection() {
            return;
        }
        self.cache.store().invalidate(url);
        for name in [LOCATION, CONTENT_LOCATION] {
            let reference = response.header(&name).and_then(|value| value.to_str().ok());
            if let Some(other) = reference.and_then(|reference| key::same_origin(url, reference)) {
                self.cache.store().invalidate(&other);
            }
        }
    }

    /// Forwards a request, or waits for the response to another one.
    async fn fetch(&self, request: Request, lookup: Lookup, need: Need) -> Response {
        if lookup.control.is_only_if_cached {
            let response = Response::from(StatusCode::GATEWAY_TIMEOUT);
            return self.forwarded(response, Handling::passed(need.reason));
        }
        let store = self.cache.store();
        let (hash, settings) = (store.hash(&lookup.key.url), self.cache.settings());
        let is_whole = is_get(request.head())
            && (need.stale.is_some() || !request.headers().contains("range"));
        let is_private = need.stale.is_none() && store.admission().is_private(hash, wall::now());
        let is_passed = !is_whole
            || lookup.control.is_no_store
            || is_private && is_conditional(request.headers())
            || !store.admission().admits(hash, settings.min_uses);
        if is_passed {
            return self.pass(request, need.reason).await;
        }
        if is_private {
            return self.fetch_alone(request, lookup, need).await;
        }
        let participant = store.flights().join(&lookup.key.url, &self.selecting(&lookup));
        match timeout(settings.collapse_timeout, participant.turn()).await {
            Ok(Turn::Fetch(pilot)) => self.fly(request, lookup, need, pilot).await,
            Ok(Turn::Landed(landing)) => {
                self.join(request, lookup, need, participant, landing).await
            }
            Err(_) => self.pass(request, need.reason).await,
        }
    }

    /// Returns the values that tell requests of a URL apart, as far as stored responses show it.
    fn selecting(&self, lookup: &Lookup) -> Vec<u8> {
        let mut selecting = lookup.key.extras.to_vec();
        let known = self.cache.store().last_variant(&lookup.key.url);
        for name in known.iter().flat_map(|known| known.head().selector.names()) {
            selecting.extend(selecting_value(lookup.head.headers(), name).unwrap_or_default());
            selecting.push(b'\n');
        }
        selecting
    }

    /// Answers with the response to another request, if it suits this one.
    async fn join(
        &self,
        request: Request,
        lookup: Lookup,
        need: Need,
        participant: Participant,
        landing: Landing,
    ) -> Response {
        let answer = Handling::Forwarded {
            reason: need.reason,
            status: None,
            is_stored: true,
            is_collapsed: true,
        };
        let is_private = matches!(landing, Landing::Private);
        if let Some(response) = self.answer(&landing, &lookup, participant, answer) {
            self.cache.count(Event::Collapsed);
            return response;
        }
        if is_private {
            return self.pass(request, need.reason).await;
        }
        self.fetch_alone(request, lookup, need).await
    }

    /// Forwards a request for whose response no other request waits.
    async fn fetch_alone(&self, request: Request, lookup: Lookup, need: Need) -> Response {
        let participant = self.cache.store().flights().alone(&lookup.key.url);
        match participant.turn().await {
            Turn::Fetch(pilot) => self.fly(request, lookup, need, pilot).await,
            Turn::Landed(_) => self.pass(request, need.reason).await,
        }
    }

    /// Forwards a request. A task of its own receives the response, so that it goes on when the
    /// client leaves.
    async fn fly(
        &self,
        request: Request,
        lookup: Lookup,
        need: Need,
        mut pilot: Pilot,
    ) -> Response {
        let is_validation = need.stale.is_some();
        if !is_validation {
            self.cache.count(Event::Miss);
        }
        let fetch = self.fetch_for(&lookup, &need);
        let (app, (sender, receiver)) = (self.app.clone(), oneshot::channel());
        spawn_local(async move {
            let Some((fetched, receipt)) = fetch.forward(&app, request, &mut pilot).await else {
                return;
            };
            _ = sender.send(fetched);
            if let Some(receipt) = receipt {
                receipt.receive(&pilot).await;
            }
        });
        let handling = |status: StatusCode| Handling::Forwarded {
            reason: need.reason,
            status: is_validation.then_some(status),
            is_stored: !is_validation || status == StatusCode::NOT_MODIFIED || status.is_success(),
            is_collapsed: false,
        };
        match receiver.await {
            Ok(Fetched::Private(response)) => {
                self.forwarded(response, Handling::passed(need.reason))
            }
            Ok(Fetched::Stored(stored, status)) => {
                stored.forwarded(&self.cache.settings().name, handling(status), wall::now())
            }
            Ok(Fetched::Arriving(arrival, Some(body))) => {
                self.arriving(&arrival, body, &lookup.head, handling(arrival.head.status))
            }
            Ok(Fetched::Arriving(_, None)) | Err(_) => failed(),
        }
    }

    fn fetch_for(&self, lookup: &Lookup, need: &Need) -> Fetch {
        Fetch {
            cache: self.cache.clone(),
            key: lookup.key.clone(),
            client: lookup.client,
            stale: need.stale.clone(),
            may_replace_error: need.may_replace_error,
        }
    }

    /// Validates a stored response in the background, unless that is being done.
    fn revalidate(&self, request: Request, lookup: Lookup, need: Need) {
        let participant =
            self.cache.store().flights().join(&lookup.key.url, &self.selecting(&lookup));
        let Some(mut pilot) = participant.take_turn() else { return };
        let (fetch, app) = (self.fetch_for(&lookup, &need), self.app.clone());
        let request = request.without_body();
        spawn_local(async move {
            let _participant = participant;
            if let Some((_, Some(receipt))) = fetch.forward(&app, request, &mut pilot).await {
                receipt.receive(&pilot).await;
            }
        });
    }

    /// Returns a shared response, if it suits the request.
    fn answer(
        &self,
        landing: &Landing,
        lookup: &Lookup,
        participant: Participant,
        handling: Handling,
    ) -> Option<Response> {
        let now = wall::now();
        match landing {
            Landing::Private => None,
            Landing::Stored(stored) => {
                let is_suitable = stored.matches(&lookup.key, &lookup.head);
                is_suitable.then(|| {
                    stored.touch();
                    stored.forwarded(&self.cache.settings().name, handling, now)
                })
            }
            Landing::Arriving(arrival) => {
                let head = &arrival.head;
                let is_suitable = head.key.extras == lookup.key.extras
                    && head.selector.matches(lookup.head.headers());
                let body = is_suitable.then(|| arrival.body.reader(participant)).flatten()?;
                Some(self.arriving(arrival, body, &lookup.head, handling))
            }
        }
    }

    /// Returns a response that is received, with one of its readers.
    fn arriving(
        &self,
        arrival: &Arrival,
        body: Body,
        head: &RequestHead,
        handling: Handling,
    ) -> Response {
        let now = wall::now();
        let mut response = arrival.head.response(body);
        let age = arrival.head.policy.age(now);
        if age > 0 {
            response.append_header(AGE, age.to_string());
        }
        let response = self.forwarded(response, handling);
        match response.status() {
            StatusCode::OK => representation::evaluate_preconditions(head, response, now),
            _ => response,
        }
    }

    /// Adds `Cache-Status` to a response.
    fn forwarded(&self, mut response: Response, handling: Handling) -> Response {
        if let Ok(value) = HeaderValue::try_from(member(&self.cache.settings().name, handling)) {
            response.append_header(CACHE_STATUS, value);
        }
        response
    }
}

impl<A: Application + Clone + 'static> Application for Cached<A> {
    async fn call(&self, request: Request) -> Response {
        self.handle(request).await
    }
}

impl Need {
    fn miss(reason: Forwarded) -> Need {
        Need { reason, stale: None, may_replace_error: false }
    }

    fn validation(stale: Arc<StoredResponse>, may_replace_error: bool, now: u64) -> Need {
        let reason = match stale.reuse(&RequestControl::default(), now) {
            Reuse::Fresh { .. } => Forwarded::Request,
            _ => Forwarded::Stale,
        };
        Need { reason, stale: Some(stale), may_replace_error }
    }
}

fn applies(predicate: &Option<Arc<RequestPredicate>>, request: &Request) -> bool {
    predicate.as_ref().is_some_and(|predicate| predicate(request))
}

/// Returns true if the response has content: some applications obey the method that the client has
/// sent, also if middleware has set another.
fn is_get(head: &RequestHead) -> bool {
    *head.method() == Method::GET && *head.received_method() == Method::GET
}

/// Returns the response to a request whose fetch has panicked.
fn failed() -> Response {
    let error = Error::other("the application ended without a response");
    Response::from(StatusCode::INTERNAL_SERVER_ERROR).with_error(error)
}
