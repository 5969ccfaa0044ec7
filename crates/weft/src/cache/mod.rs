//! A shared response cache (RFC 9111) in front of any application.
//!
//! [`Cache`] holds the settings of one route, and makes an application of it; [`Store`] holds the
//! stored responses of all routes and workers, in memory, and with [`Store::disk`] also in files.
//!
//! ```
//! use weft::cache::{Cache, Store};
//! use weft::{Request, Response, header};
//!
//! async fn page(_: Request) -> Response {
//!     Response::html("<p>Hello").with_header(header::CACHE_CONTROL, "max-age=60")
//! }
//!
//! let store = Store::new();
//! let app = Cache::new(&store).over(page);
//! let first = weft::testing::get(app.clone(), "/");
//! assert_eq!(first.header("cache-status"), Some("Weft; fwd=uri-miss; stored"));
//! let second = weft::testing::get(app, "/");
//! assert_eq!(second.header("age"), Some("0"));
//! assert!(second.header("cache-status").unwrap().starts_with("Weft; hit; ttl="));
//! ```
//!
//! # Responses that are stored
//!
//! Final responses to GET whose fields permit a shared cache to store them (RFC 9111 §3), with a
//! lifetime that they state, that [`Cache::lifetime`] sets for their status, or that is estimated
//! from `Last-Modified`. Never stored are responses
//!
//! - to requests with a body, with `Range`, or with `Upgrade`,
//! - with `Set-Cookie`, unless they are `public` or [`Cache::store_cookies`] permits it,
//! - to requests with `Authorization`, unless `public`, `must-revalidate` or `s-maxage` permits it,
//! - that end before their declared length, or exceed [`Cache::max_object_bytes`],
//! - that this server made because the application failed.
//!
//! Scheme, host and port are always part of the key, and so are fields by which a client could
//! change the resource unseen, such as `X-Forwarded-Host` and `X-Original-URL`.
//!
//! # Requests at the same time
//!
//! Of several requests for a response that is not stored, one is forwarded. The others receive the
//! same response while it arrives, each at its own pace. If that request fails, the next one is
//! forwarded. A request waits for another at most for [`Cache::collapse_timeout`].

mod admission; // URLs whose responses are not stored
mod cached; // Cached: the application
mod content_memory; // contents stored, arriving and being sent
mod disk_tier; // responses in files
mod eviction; // the order in which responses leave the store
mod fetch; // a request to the application on behalf of all that wait for it
mod flight; // fetches in progress
mod growing; // bodies that arrive while they are sent
mod key; // what identifies a resource, and a request for it
mod open_contents; // responses whose contents are open files
mod purge; // removal of responses
mod settings; // Cache: the settings of a route
mod statistics; // counts
mod store; // Store: the stored responses
mod stored_response; // a response, and what decides about its reuse

pub use cached::Cached;
pub use disk_tier::{DiskSettings, DiskTotals};
pub use key::QueryKey;
pub use purge::Purge;
pub use settings::Cache;
pub use statistics::Statistics;
pub use store::Store;
pub use stored_response::{Entry, EntryOrder, FileEntry};
