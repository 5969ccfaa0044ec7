//! Models of the cells that threads share, as in the library: `crates/weft/tests/models`.

#![allow(dead_code, unused_imports, reason = "a model uses a part of each file")]

/// Paths of the program and of tokio that the files below import.
extern crate self as tokio;
extern crate tokio as real_tokio;

#[path = "../../../weft/tests/models/checker.rs"]
mod checker;
#[path = "../../../weft/tests/models/stand_ins.rs"]
mod stand_ins;
mod thread;

pub use real_tokio::{runtime, task, test};
pub use shuttle::future::spawn;
pub use stand_ins::time;

mod sync {
    pub use crate::stand_ins::sync::*;
    pub(crate) use crate::thread;
}

mod base {
    pub(crate) use crate::sync;
}

mod logs {
    pub mod file {
        pub struct LogFile;
    }
    pub mod target {
        pub struct Target;
    }
    pub mod output;
    #[path = "../../../src/logs/sink.rs"]
    mod sink;
    pub mod sink_model;
}

use logs::sink_model;

fn main() {
    checker::run(&[
        ("sink::writes_each_line_once", sink_model::writes_each_line_once),
        ("sink::full_buffer_loses_no_line", sink_model::full_buffer_loses_no_line),
        ("sink::stop_blocking_releases_sources", sink_model::stop_blocking_releases_sources),
        ("sink::lossy_source_never_waits", sink_model::lossy_source_never_waits),
        ("sink::last_source_ends_the_writer", sink_model::last_source_ends_the_writer),
    ]);
}
