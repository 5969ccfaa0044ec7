//! Locks, atomics and threads of the cells that threads share.
//!
//! These cells are compiled twice: here with the types of the standard library, and in
//! `tests/models` with the types of a model checker.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
