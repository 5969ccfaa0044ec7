//! Settings of `Directory`: variants, header fields, pages and symbolic links, tested over real
//! sockets.
#![cfg(all(feature = "brotli", feature = "files", feature = "gzip", feature = "zstd"))]

mod precompressed;
mod compression;
mod languages;
mod fields;
mod pages;
mod links;
mod embedded;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use crate::common::tree::{
    SECRET, Tree, as_nobody, ask, assert_bodies, assert_statuses, decoded, fields_without_date,
    send_request_with_fields, serve,
};
use crate::common::{Client, Response, stop, until};
use weft::StatusCode;
use weft::files::{Directory, DirectorySettings, FallbackPaths, HeaderRule, Symlinks};
use weft::header::{ACCEPT_RANGES, CONTENT_TYPE, ETAG, VARY, X_FRAME_OPTIONS};
use weft::header::{HeaderName, HeaderValue};

/// Settings without dynamic compression. Precompressed files are still served.
fn no_compression() -> DirectorySettings {
    DirectorySettings { compress: false, ..DirectorySettings::default() }
}

/// Settings that revalidate cached files after 10 ms.
fn fast_revalidation(settings: DirectorySettings) -> DirectorySettings {
    DirectorySettings { revalidate_after: Duration::from_millis(10), ..settings }
}

/// A field line, empty without a value.
fn field_line(name: &str, value: Option<&str>) -> String {
    value.map_or(String::new(), |value| format!("{name}: {value}"))
}

fn etag(response: &Response) -> String {
    response.header("etag").expect("an ETag").to_owned()
}

fn varies_by(response: &Response) -> BTreeSet<&str> {
    let fields = response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("vary"));
    fields.flat_map(|(_, value)| value.split(',')).map(str::trim).collect()
}

/// Compressible text of `length` bytes.
fn text(length: usize) -> String {
    let words = (0_u32..).flat_map(|n| format!("{} words, ", n.wrapping_mul(n)).into_bytes());
    String::from_utf8(words.take(length).collect()).unwrap()
}

/// Incompressible bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

// -- shared by the modules

fn with_languages(languages: &[&str], settings: DirectorySettings) -> DirectorySettings {
    let languages = languages.iter().map(|&tag| tag.to_owned()).collect();
    DirectorySettings { languages, ..settings }
}

fn rule(pattern: &str, name: HeaderName, value: &'static str) -> HeaderRule {
    HeaderRule::new(pattern, name, HeaderValue::from_static(value))
}
