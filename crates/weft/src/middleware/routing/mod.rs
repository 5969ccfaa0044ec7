//! Selection of the application, and changes to the method, host and path that it gets.

mod canonical; // redirects to the canonical host and to HTTPS
pub(crate) mod clean_path; // normalization of paths
mod head; // HEAD requests handled as GET
mod method_override; // `X-HTTP-Method-Override`
mod mount; // another application for the paths under a prefix
mod rewrite; // path rewriting
mod strip_prefix; // removal of a path prefix
mod virtual_hosts; // one application per host

pub use canonical::Canonical;
pub use clean_path::{CleanPath, TrailingSlash};
pub use head::HeadAsGet;
pub use method_override::MethodOverride;
pub use mount::Mount;
pub use rewrite::Rewrite;
pub use strip_prefix::StripPrefix;
pub use virtual_hosts::VirtualHosts;
