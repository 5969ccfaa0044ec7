//! The section `[acme]` after all checks, and the settings that it stands for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weft_acme::{
    AcmeSettings, ChallengeKind, DnsSettings, ExternalAccount, FileStore, Name, NamePattern,
    OnDemandSettings, OrderPermission, OrderRate,
};

use super::client::AuthorityServers;
use super::dns::DnsMethod;
use super::permission::AskedPermission;
use crate::config::{AuthUrl, Rate};

/// Validated `[acme]` section, with the names of the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcmePlan {
    /// Sorted.
    pub(crate) names: Vec<Name>,
    /// The names of the hosts are among them.
    pub(crate) includes_hosts: bool,
    /// URLs of the directories of authorities.
    pub(crate) directories: Vec<String>,
    pub(crate) staging: Option<String>,
    pub(crate) external_account: Option<ExternalAccount>,
    pub(crate) email: Option<String>,
    /// Certificate authorities of the directories' own certificates; `None`: those of the system.
    pub(crate) ca: Option<PathBuf>,
    /// `None`: the default of the platform.
    pub(crate) state: Option<PathBuf>,
    pub(crate) allows_ephemeral_state: bool,
    /// A self-signed certificate serves names without a certificate.
    pub(crate) has_placeholder: bool,
    pub(crate) challenges: Vec<ChallengeKind>,
    pub(crate) dns: Option<DnsPlan>,
    pub(crate) profile: Option<String>,
    /// `None`: there are no orders on demand.
    pub(crate) on_demand: Option<OnDemandPlan>,
    pub(crate) retry_delay: Duration,
    pub(crate) order_timeout: Duration,
}

/// Change of the DNS for validations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsPlan {
    pub(crate) method: DnsMethod,
    /// Time in which all servers of a zone have a change.
    pub(crate) delay: Duration,
}

/// Validated settings of certificates on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnDemandPlan {
    /// Names that are permitted.
    pub(crate) patterns: Vec<NamePattern>,
    /// Resource that is asked about all other names.
    pub(crate) ask: Option<AuthUrl>,
    /// Certificate authorities of that resource; `None`: those of the system.
    pub(crate) ask_ca: Option<PathBuf>,
    /// Maximum rate of orders.
    pub(crate) rate: Rate,
    /// Maximum number of names with files in the store.
    pub(crate) max_names: usize,
    /// Time for which a handshake waits.
    pub(crate) timeout: Duration,
}

impl AcmePlan {
    /// Returns the settings of the orders.
    ///
    /// # Errors
    /// If there is no directory for the state, or if the certificate authorities of the resource that is
    /// asked about names cannot be read.
    pub(crate) fn settings(&self) -> Result<AcmeSettings, String> {
        let state = self.state.clone().or_else(FileStore::default_directory);
        let state = state
            .ok_or("there is no directory for certificates: set `state` in [acme]".to_owned())?;
        let store = FileStore::new(state);
        let store = if self.allows_ephemeral_state { store.ephemeral_state() } else { store };
        let dns = self.dns.clone().map(|DnsPlan { method, delay }| {
            let provider = Arc::new(method);
            DnsSettings { provider, delay }
        });
        Ok(AcmeSettings {
            names: self.names.clone(),
            directories: self.directories.clone(),
            staging: self.staging.clone(),
            external_account: self.external_account.clone(),
            email: self.email.clone(),
            client: Arc::new(AuthorityServers::new(self.ca.clone())),
            store: Arc::new(store),
            challenges: self.challenges.clone(),
            dns,
            profile: self.profile.clone(),
            on_demand: self.on_demand.as_ref().map(OnDemandPlan::settings).transpose()?,
            retry_delay: self.retry_delay,
            order_timeout: self.order_timeout,
        })
    }
}

impl OnDemandPlan {
    /// Returns true if the names that a wildcard stands for may be ordered one by one.
    pub(crate) fn covers(&self, wildcard: &str) -> bool {
        self.ask.is_some() || self.patterns.iter().any(|pattern| pattern.matches(wildcard))
    }

    fn settings(&self) -> Result<OnDemandSettings, String> {
        let permission = self.ask.clone().map(|url| {
            let asked = AskedPermission::new(url, self.ask_ca.as_deref(), self.timeout)?;
            Ok::<Arc<dyn OrderPermission>, String>(Arc::new(asked))
        });
        Ok(OnDemandSettings {
            patterns: self.patterns.clone(),
            permission: permission.transpose()?,
            rate: OrderRate { orders: self.rate.requests, period: self.rate.period },
            max_names: self.max_names,
            timeout: self.timeout,
        })
    }
}
