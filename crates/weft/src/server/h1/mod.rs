//! HTTP/1 connections: read a head, serve the request, repeat. Start reading here.
//!
//! # The life of a request
//!
//! 1. An idle connection waits in `connection_life.rs` until it is readable; it owns no buffer.
//!    Then [`serve`] takes over (`driver`).
//! 2. `next_head` parses the next head of the input. If it is incomplete, the driver sends the
//!    responses so far and waits for the rest.
//! 3. `take_head` determines the framing of the content after the head, and `request` creates the
//!    request. A body that was not received completely borrows the reader of the connection
//!    (`input`, `loan`).
//! 4. `exchange::serve` calls the application and sends the response through `sink`.
//! 5. Unread content is discarded, and the next head is parsed. When the input is empty,
//!    `send_responses` writes all buffered responses at once.

mod driver;
mod input;
mod lent_reader;
mod loan;
mod sink;

pub(crate) use self::driver::{NextState, serve};
