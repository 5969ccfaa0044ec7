//! The two places in which time is read: deadlines, and the time of day.

pub(crate) mod deadline;
pub(crate) mod wall;
