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
#[path = "../../src/pool/client_limit.rs"]
mod client_limit;

mod answer_cache_model;
mod client_limit_model;

fn main() {
    checker::run(&[
        ("client_limit::admits_all_waiters", client_limit_model::admits_all_waiters),
        (
            "client_limit::abandoned_waits_lose_no_permit",
            client_limit_model::abandoned_waits_lose_no_permit,
        ),
        ("answer_cache::callers_share_a_lookup", answer_cache_model::callers_share_a_lookup),
    ]);
}
