//! Models of the cells that threads share.
//!
//! The source files of these cells are compiled here a second time, with the locks, threads and
//! timeouts of shuttle. The program itself needs no conditional compilation for that, and nothing
//! but these files is compiled again. Their unit tests are left out, because this binary does not
//! use the standard test harness.

#![allow(dead_code, unused_imports, reason = "a model uses a part of each file")]

/// Paths of the library and of tokio that the files below import.
extern crate self as tokio;
extern crate tokio as real_tokio;

mod checker;
mod stand_ins;

pub use real_tokio::{runtime, task};
pub use stand_ins::{sync, time};

mod settings {
    pub use weft::Settings;
}

mod message {
    pub mod request {
        pub use weft::Request;
    }
}

#[path = "../../src/client_limit.rs"]
mod client_limit;
#[path = "../../src/net/connection_limiter.rs"]
mod connection_limiter;
#[path = "../../src/server/h1/loan.rs"]
mod loan;
#[path = "../../src/server/multiplex/pipe.rs"]
mod pipe;
#[path = "../../src/server/multiplex/ready_queue.rs"]
mod ready_queue;

mod client_limit_model;
mod limiter_model;
mod loan_model;
mod pipe_model;

fn main() {
    checker::run(&[
        ("loan::returns_the_reader_once", loan_model::returns_the_reader_once),
        ("loan::revocation_wakes_the_body", loan_model::revocation_wakes_the_body),
        ("pipe::delivers_the_body", pipe_model::delivers_the_body),
        ("pipe::reports_a_finished_pipe", pipe_model::reports_a_finished_pipe),
        ("pipe::delivers_tunneled_data", pipe_model::delivers_tunneled_data),
        ("pipe::reset_ends_both_directions", pipe_model::reset_ends_both_directions),
        (
            "limiter::ended_connections_wake_acceptors",
            limiter_model::ended_connections_wake_acceptors,
        ),
        ("limiter::idle_connections_are_closed", limiter_model::idle_connections_are_closed),
        ("limiter::counts_peers", limiter_model::counts_peers),
        ("client_limit::admits_all_waiters", client_limit_model::admits_all_waiters),
        (
            "client_limit::abandoned_waits_lose_no_permit",
            client_limit_model::abandoned_waits_lose_no_permit,
        ),
    ]);
}
