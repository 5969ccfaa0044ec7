//! Active health checks.

pub(crate) mod health_check;
mod http2_check;
