//! Active health checks.

mod grpc_health;
pub(crate) mod health_check;
