//! Small parts that know nothing of upstreams.

pub mod counter;
pub(crate) mod crypto;
pub(crate) mod decimal;
pub(crate) mod inactivity_timer;
pub(crate) mod invalid_settings;
pub(crate) mod random;
pub mod rendezvous;
pub(crate) mod sync;
pub mod task;
pub(crate) mod throttled_warning;
