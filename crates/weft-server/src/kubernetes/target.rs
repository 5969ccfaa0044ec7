//! Applies the plans of a cluster to this process.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use tokio::sync::{oneshot, watch};
use weft::tls::Identity;
use weft_config::{ConfigLocation, Problem};
use weft_kubernetes::{DEFAULT_SERVER_NAME, Endpoint, PemIdentity, Target, TextProblem};
use weft_upstream::LocalServer;

use crate::cli::args::{Args, GENERATED};
use crate::config_change::{ChangeRequest, ChangeSender};
use crate::sections::provided::ProvidedParts;

/// Server name in the collection of certificates for clients that send none.
const NO_SERVER_NAME: &str = "0.0.0.0";

/// This process as the target of plans.
pub(super) struct ProgramTarget {
    args: Arc<Args>,
    provided: ProvidedParts,
    /// Starts the server; `None` once it was used.
    first: Option<SyncSender<Result<(), String>>>,
    /// Set when the server has started.
    changes: watch::Receiver<Option<ChangeSender>>,
}

impl ProgramTarget {
    pub(super) fn new(
        args: Arc<Args>,
        provided: ProvidedParts,
        first: SyncSender<Result<(), String>>,
        changes: watch::Receiver<Option<ChangeSender>>,
    ) -> ProgramTarget {
        ProgramTarget { args, provided, first: Some(first), changes }
    }

    /// Has the server use the text. Returns false if it does not.
    async fn reload(&mut self) -> bool {
        let changes = match self.changes.wait_for(Option::is_some).await {
            Ok(changes) => changes.clone(),
            Err(_) => None,
        };
        let Some(changes) = changes else { return false };
        let (reply, result) = oneshot::channel();
        changes.send(ChangeRequest::Generated { reply }).await.is_ok() && result.await == Ok(true)
    }
}

impl Target for ProgramTarget {
    fn set_endpoints(&mut self, pool: &str, endpoints: Vec<Endpoint>) {
        let server = |Endpoint { address, weight }| LocalServer { address, weight };
        let servers: Vec<_> = endpoints.into_iter().map(server).collect();
        self.provided.services.set(pool, &servers);
    }

    fn retain_pools(&mut self, is_used: &dyn Fn(&str) -> bool) {
        self.provided.services.retain(is_used);
    }

    fn set_identity(&mut self, name: &str, identity: &PemIdentity) -> Result<(), String> {
        let Some(identities) = &self.provided.identities else { return Ok(()) };
        let identity = Identity::pem(&identity.certificate, &identity.key);
        let name = if name == DEFAULT_SERVER_NAME { NO_SERVER_NAME } else { name };
        identities.insert(name, &identity).map_err(|error| error.to_string())
    }

    fn remove_identity(&mut self, name: &str) {
        let name = if name == DEFAULT_SERVER_NAME { NO_SERVER_NAME } else { name };
        self.provided.identities.iter().for_each(|identities| identities.remove(name));
    }

    fn check(&mut self, text: &str) -> Vec<TextProblem> {
        let problem = |problem: Problem| {
            let line = match &problem.location {
                ConfigLocation::File { name, line, .. } if **name == *GENERATED => Some(*line),
                _ => None,
            };
            TextProblem { line, message: problem.message }
        };
        self.args.check_generated(text).into_iter().map(problem).collect()
    }

    async fn apply(&mut self, text: String) -> bool {
        let former = self.args.replace_generated(text);
        let is_applied = match self.first.take() {
            Some(first) => first.send(Ok(())).is_ok(),
            None => self.reload().await,
        };
        if !is_applied {
            self.args.replace_generated(former);
        }
        is_applied
    }
}
