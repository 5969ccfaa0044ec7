//! Clocks: deadlines on a coarse monotonic clock, and the time of day. Other modules read no clock.

pub(crate) mod deadline;
pub(crate) mod wall;
