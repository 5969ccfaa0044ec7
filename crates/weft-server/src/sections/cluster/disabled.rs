//! A program without the feature `cluster`.

use std::sync::Arc;

use weft::middleware::RateLimit;
use weft::tls::TicketSecret;
use weft_acme::AcmeSettings;
use weft_config::Problem;

use super::{ClusterConfig, ClusterInput, ClusterReport, MachineEntry, PublishedPurge};

/// A machine in its cluster. There is none.
pub(crate) enum OpenedCluster {}

const UNSUPPORTED: &str = "this program was compiled without the feature `cluster`";

pub(super) fn check_url(_: &str) -> Result<(), String> {
    check_support()
}

pub(super) fn check_support() -> Result<(), String> {
    Err(UNSUPPORTED.to_owned())
}

impl OpenedCluster {
    pub(crate) fn open(
        _: &ClusterConfig,
        _: Option<&Arc<OpenedCluster>>,
    ) -> Result<Arc<OpenedCluster>, Problem> {
        Err(Problem::without_location(UNSUPPORTED))
    }

    pub(crate) fn share(&self, _: RateLimit, _: &str) -> RateLimit {
        match *self {}
    }

    pub(crate) fn ticket_secrets(&self) -> Vec<TicketSecret> {
        match *self {}
    }

    pub(crate) fn start(
        &self,
        _: impl Fn(ClusterInput) + Send + Sync + 'static,
        _: impl Fn() -> String + Send + 'static,
    ) {
        match *self {}
    }

    pub(crate) fn share_certificates(&self, _: AcmeSettings) -> AcmeSettings {
        match *self {}
    }

    pub(crate) fn machines(&self) -> Result<Vec<MachineEntry>, String> {
        match *self {}
    }

    pub(crate) async fn publish(&self, _: &[u8]) -> PublishedPurge {
        match *self {}
    }

    pub(crate) fn report(&self) -> Option<ClusterReport> {
        match *self {}
    }

    pub(crate) fn check(&self) -> Option<Problem> {
        match *self {}
    }
}
