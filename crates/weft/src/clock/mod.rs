//! The two places in which time is read: deadlines, and the time of day.

#[cfg(feature = "files")]
pub(crate) mod age;
pub(crate) mod deadline;
pub(crate) mod wall;
