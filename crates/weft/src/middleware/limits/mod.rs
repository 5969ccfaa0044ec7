//! Limits on requests and on the time of the application.

mod body_limit; // limit on the size of request bodies
mod body_rate; // minimum rate of request bodies
mod bucket_rate; // the rate of a limit, in time that refills a bucket
mod buckets; // the buckets of clients
mod concurrency; // limit on concurrent requests
mod rate_limit; // request rate limit per client
mod retry_after; // Retry-After of responses
mod shared_buckets; // changes of buckets that several processes share
mod shared_rate; // a rate limit that several processes share
mod timeout; // limit on the response time of the application

pub use body_limit::BodyLimit;
pub use body_rate::BodyRate;
pub use concurrency::ConcurrencyLimit;
pub use rate_limit::RateLimit;
pub use shared_rate::{SharedRate, TakenRequests};
pub use timeout::Timeout;
