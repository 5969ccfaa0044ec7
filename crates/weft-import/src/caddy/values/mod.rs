//! Values of requests in texts.

pub(super) mod maps; // `map` → tables of `[maps]`
pub(super) mod placeholders; // placeholders → placeholders
