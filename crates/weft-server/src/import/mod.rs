//! `weft import`: configurations of other servers → weft.toml.

mod document; // a configuration file that is being composed
mod hoist; // options that routes and hosts have in common
mod nginx; // nginx.conf

pub(crate) use nginx::{DIFFERENCES as NGINX_DIFFERENCES, import as import_nginx};

/// An imported configuration.
#[derive(Debug)]
pub(crate) struct Imported {
    pub(crate) text: String,
    /// True if no directive was lost.
    pub(crate) is_complete: bool,
}
