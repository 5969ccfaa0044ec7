//! Models of the cells that threads share, as in the library: `crates/weft/tests/models`.

#![allow(dead_code, unused_imports, reason = "a model uses a part of each file")]

/// Paths of the crate and of tokio that the files below import.
extern crate self as tokio;
extern crate tokio as real_tokio;

#[path = "../../../weft/tests/models/checker.rs"]
mod checker;
#[path = "../../../weft/tests/models/stand_ins.rs"]
mod stand_ins;

pub use real_tokio::{runtime, task, test};
pub use shuttle::future::spawn;
pub use stand_ins::{sync, time};

mod base {
    pub(crate) use crate::sync;
}

#[path = "../../src/dns/answer_cache.rs"]
mod answer_cache;

mod answer_cache_model;

fn main() {
    checker::run(&[(
        "answer_cache::callers_share_a_lookup",
        answer_cache_model::callers_share_a_lookup,
    )]);
}
