//! Clocks: deadlines on a coarse monotonic clock, and the time of day. Other modules read no clock.

#[cfg(feature = "files")]
pub(crate) mod age;
pub(crate) mod cached_date;
pub(crate) mod deadline;
pub(crate) mod ticker;
pub(crate) mod wall;
