//! Certificates that the server orders from a certificate authority by ACME (RFC 8555), and renews.
//!
//! Each name has a certificate of its own, so that a name that cannot be validated does not keep the
//! others from theirs. The certificates are files of a [`Store`], and in memory in the `registry`, from
//! which TLS takes them. The files are read again only when another process with the same store may
//! have changed them. A handshake with another name may wait for a certificate on demand (`on_demand`,
//! `demand`). Until the first order has ended, a self-signed certificate is in its place.
//!
//! One task in a thread of its own, the `manager`, decides when a certificate is due (`renewal`), and
//! runs the orders (`order`), whose requests go by the proxy's client (`client`). The authority's
//! validations are answered from [`Challenges`] by the routers and by TLS.

mod accounts; // commands about accounts and certificates
mod challenges; // responses to the authority's validations
mod client; // requests to the authority
mod demand; // one certificate on demand
mod dns; // TXT records for validations
mod failures; // log lines about failures
mod manager; // orders certificates when they are due
mod on_demand; // requests of handshakes, and the permission of orders
mod order; // one order
mod registry; // the certificates of all names in memory
mod renewal; // times of renewals and of retries
mod settings; // what to order, from which authority
mod sign_in; // accounts with authorities
mod store; // the files of accounts and certificates
mod stored; // a stored certificate, and when it is due

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedReceiver;
use weft::tls::NamedIdentities;

pub(crate) use self::accounts::{revoke, roll_over};
pub(crate) use self::challenges::Challenges;
pub(crate) use self::dns::{DnsProvider, DnsSettings};
pub(crate) use self::on_demand::{NamePattern, OnDemandPlan};
pub(crate) use self::registry::{CertificateInfo, Registry};
pub(crate) use self::settings::{AcmePlan, ChallengeKind, EabKey, Name};
pub(crate) use self::store::Store;
pub(crate) use self::stored::StoredCertificate;

use self::failures::FailureLog;
use self::on_demand::{DemandRequest, OnDemand};
use self::sign_in::FailedSignIns;
use crate::active_plan::PlanReceiver;

/// Automatic certificates of the process, which a reload keeps.
pub(crate) struct Acme {
    pub(crate) challenges: Challenges,
    pub(crate) registry: Registry,
    on_demand: OnDemand,
    failed_sign_ins: FailedSignIns,
    failures: FailureLog,
    /// The manager takes it.
    requests: Mutex<Option<UnboundedReceiver<DemandRequest>>>,
}

impl Acme {
    pub(crate) fn new(plan: &AcmePlan) -> Acme {
        let (on_demand, requests) = OnDemand::new(plan.on_demand.clone());
        Acme {
            challenges: Challenges::default(),
            registry: Registry::new(NamedIdentities::with_source(on_demand.clone())),
            on_demand,
            failed_sign_ins: FailedSignIns::default(),
            failures: FailureLog::default(),
            requests: Mutex::new(Some(requests)),
        }
    }

    /// Starts the manager, unless it runs.
    pub(crate) fn start(self: &Arc<Acme>, plans: PlanReceiver) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(requests) = requests else { return };
        let acme = self.clone();
        let run = move || manager::run(acme, plans, requests);
        if let Err(error) = std::thread::Builder::new().name("acme".to_owned()).spawn(run) {
            log::error!("cannot start the thread that orders certificates: {error}");
        }
    }
}
