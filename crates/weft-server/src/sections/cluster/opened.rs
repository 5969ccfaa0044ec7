//! [`ClusterConfig`] → [`OpenedCluster`].

use std::path::PathBuf;
use std::sync::Arc;

use weft::middleware::RateLimit;
use weft::tls::TicketSecret;
use weft_cluster::{Cluster, ClusterEvent, ClusterSecret, Published, StoreSettings, StoreUrl};
use weft_config::{Located, Problem};
use weft_upstream::tls::client_config_without_alpn;

use super::{ClusterConfig, ClusterInput, ClusterReport, PublishedPurge};

/// A machine in its cluster: its secrets, and its connection to the store, if there is one.
pub(crate) struct OpenedCluster {
    config: ClusterConfig,
    secrets: Vec<ClusterSecret>,
    password: Option<String>,
    cluster: Option<Cluster>,
}

pub(super) fn check_url(text: &str) -> Result<(), String> {
    text.parse::<StoreUrl>().map(drop)
}

pub(super) fn check_support() -> Result<(), String> {
    Ok(())
}

impl OpenedCluster {
    /// Reads the files of a plan. Keeps `former` with its connections if nothing has changed.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub(crate) fn open(
        config: &ClusterConfig,
        former: Option<&Arc<OpenedCluster>>,
    ) -> Result<Arc<OpenedCluster>, Problem> {
        let secrets = read(config.secret_file.as_ref(), ClusterSecret::read)?;
        let secrets = secrets.unwrap_or_default();
        let password = read(config.password_file.as_ref(), |text| {
            let text = str::from_utf8(text).map_err(|_| "it is not a text in UTF-8".to_owned())?;
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        })?;
        if let Some(former) = former.filter(|former| {
            (&former.config, &former.secrets, &former.password) == (config, &secrets, &password)
        }) {
            return Ok(former.clone());
        }
        let cluster = match (&config.store, secrets.first()) {
            (Some(store), Some(secret)) => Some(
                config.connect(store, secret, password.clone()).map_err(|it| store.problem(it))?,
            ),
            _ => None,
        };
        Ok(Arc::new(OpenedCluster { config: config.clone(), secrets, password, cluster }))
    }

    /// Shares a rate limit with the other machines, if there is a store.
    pub(crate) fn share(&self, limit: RateLimit, name: &str) -> RateLimit {
        match &self.cluster {
            Some(cluster) => cluster.share(limit, name),
            None => limit,
        }
    }

    /// Returns the secrets for session tickets.
    pub(crate) fn ticket_secrets(&self) -> Vec<TicketSecret> {
        let secrets = self.secrets.iter();
        secrets.map(|secret| TicketSecret::new(secret.derive("session tickets"))).collect()
    }

    /// Starts the exchange with the other machines, unless it is in progress.
    pub(crate) fn start(&self, handle: impl Fn(ClusterInput) + Send + Sync + 'static) {
        let Some(cluster) = &self.cluster else { return };
        let started = cluster.start(Arc::new(move |event| match event {
            ClusterEvent::Message(message) => handle(ClusterInput::Message(message)),
            _ => handle(ClusterInput::Gap),
        }));
        if let Err(error) = started {
            log::error!("{error}");
        }
    }

    /// Passes a purge on to the other machines.
    pub(crate) async fn publish(&self, purge: &[u8]) -> PublishedPurge {
        let Some(cluster) = &self.cluster else { return PublishedPurge::OnlyHere };
        match cluster.publish(purge).await {
            Published::Sent => PublishedPurge::Sent,
            Published::Pending => PublishedPurge::Pending,
            _ => PublishedPurge::Refused,
        }
    }

    /// Returns the state and the counts; `None` without a store.
    pub(crate) fn report(&self) -> Option<ClusterReport> {
        let status = self.cluster.as_ref()?.status();
        Some(ClusterReport {
            is_connected: status.is_connected,
            servers: status.processes,
            published: status.published,
            received: status.received,
            forged: status.forged,
            gaps: status.gaps,
        })
    }

    /// Connects to the store. Returns a warning if it cannot be used.
    pub(crate) fn check(&self) -> Option<Problem> {
        let error = self.cluster.as_ref()?.check().err()?;
        let message = format!(
            "{error}; while the store cannot be used, each machine has its part of the rate limits, \
             and purges wait"
        );
        let store = self.config.store.as_ref();
        Some(store.map_or_else(|| Problem::without_location(&message), |it| it.problem(&message)))
    }
}

impl ClusterConfig {
    fn connect(
        &self,
        store: &Located<String>,
        secret: &ClusterSecret,
        password: Option<String>,
    ) -> Result<Cluster, String> {
        let url: StoreUrl = store.value.parse()?;
        let ca = self.ca.as_ref().map(|path| path.value.as_path());
        let tls = url.is_tls().then(|| client_config_without_alpn(ca)).transpose()?;
        let settings = StoreSettings { url, user: self.user.clone(), password, tls };
        Cluster::new(settings, &self.name, secret)
    }
}

/// Reads a file. The error has its location.
fn read<T>(
    path: Option<&Located<PathBuf>>,
    parse: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<Option<T>, Problem> {
    let Some(path) = path else { return Ok(None) };
    let shown = path.value.display();
    let text = std::fs::read(&path.value)
        .map_err(|error| path.problem(format!("cannot read {shown}: {error}")))?;
    parse(&text).map(Some).map_err(|reason| path.problem(format!("{shown}: {reason}")))
}
