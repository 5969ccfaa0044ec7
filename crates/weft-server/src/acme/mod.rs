//! Automatic certificates (`weft_acme`), as the configuration has them: settings, the client of the proxy
//! for requests to authorities, changes of the DNS, and the permission of orders on demand.

mod client; // requests to authorities by the proxy's client
mod dns; // TXT records for validations
mod permission; // the resource that is asked about names
mod plan; // the section [acme] after all checks

pub(crate) use self::dns::DnsMethod;
pub(crate) use self::plan::{AcmePlan, DnsPlan, OnDemandPlan};
