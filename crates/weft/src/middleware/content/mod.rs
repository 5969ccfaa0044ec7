//! Content of responses.

#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
mod compress; // content coding of responses
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
mod copied_body; // compressed body of which a copy is kept
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
mod encoded; // body compressed while it is polled
mod error_pages; // pages for errors
mod etag; // entity-tags and 304 responses
mod substitute; // substitution of texts in bodies

#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
pub use compress::Compress;
pub use error_pages::ErrorPages;
pub use etag::ETag;
pub use substitute::{Replacement, Substitute};
