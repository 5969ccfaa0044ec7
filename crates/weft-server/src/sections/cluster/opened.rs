//! [`ClusterConfig`] → [`OpenedCluster`].

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weft::middleware::RateLimit;
use weft::tls::TicketSecret;
use weft_acme::AcmeSettings;
use weft_cluster::{
    Cluster, ClusterEvent, ClusterSecret, Published, SharedValues, StoreSettings, StoreUrl,
};
use weft_config::{Located, Problem};
use weft_upstream::tls::client_config_without_alpn;

use super::shared_certificates::{CHANGED, SharedCertificates};
use super::{ClusterConfig, ClusterInput, ClusterReport, MachineEntry, PublishedPurge};

/// A machine in its cluster: its secrets, and its connection to the store, if there is one.
pub(crate) struct OpenedCluster {
    config: ClusterConfig,
    secrets: Vec<ClusterSecret>,
    password: Option<String>,
    cluster: Option<Connected>,
}

/// The connection to the store.
struct Connected {
    cluster: Arc<Cluster>,
    values: Arc<SharedValues>,
    /// Number of changes of certificates that other machines have reported.
    changes: Arc<AtomicU64>,
}

/// Beginning of the keys of machines.
const MACHINES: &str = "machines/";

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
            (Some(store), Some(secret)) => {
                let connected = config.connect(store, secret, password.clone());
                let cluster = Arc::new(connected.map_err(|it| store.problem(it))?);
                let values = Arc::new(cluster.values(&secrets));
                Some(Connected { cluster, values, changes: Arc::default() })
            }
            _ => None,
        };
        Ok(Arc::new(OpenedCluster { config: config.clone(), secrets, password, cluster }))
    }

    /// Shares a rate limit with the other machines, if there is a store.
    pub(crate) fn share(&self, limit: RateLimit, name: &str) -> RateLimit {
        match &self.cluster {
            Some(connected) => connected.cluster.share(limit, name),
            None => limit,
        }
    }

    /// Returns the secrets for session tickets.
    pub(crate) fn ticket_secrets(&self) -> Vec<TicketSecret> {
        let secrets = self.secrets.iter();
        secrets.map(|secret| TicketSecret::new(secret.derive("session tickets"))).collect()
    }

    /// Lets the other machines have accounts, certificates and validations, if there is a store.
    /// The store of `settings` has the copies of this machine.
    pub(crate) fn share_certificates(&self, settings: AcmeSettings) -> AcmeSettings {
        let Some(Connected { cluster, values, changes }) = &self.cluster else { return settings };
        let (values, changes) = (values.clone(), changes.clone());
        let shared =
            Arc::new(SharedCertificates::new(values, settings.store.clone(), cluster, changes));
        AcmeSettings { store: shared.clone(), validations: Some(shared), ..settings }
    }

    /// Starts the exchange with the other machines, unless it is in progress. `entry` describes
    /// this machine for them.
    pub(crate) fn start(
        &self,
        handle: impl Fn(ClusterInput) + Send + Sync + 'static,
        entry: impl Fn() -> String + Send + 'static,
    ) {
        let Some(Connected { cluster, values, changes }) = &self.cluster else { return };
        let changes = changes.clone();
        let started = cluster.start(Arc::new(move |event| match event {
            ClusterEvent::Message(message) if message == CHANGED => {
                changes.fetch_add(1, Relaxed);
                handle(ClusterInput::CertificatesChanged);
            }
            ClusterEvent::Message(message) => handle(ClusterInput::Message(message)),
            _ => {
                changes.fetch_add(1, Relaxed);
                handle(ClusterInput::Gap);
            }
        }));
        let key = format!("{MACHINES}{:016x}", cluster.process());
        let announced = values.announce(&key, Box::new(move || entry().into_bytes()));
        if let Err(error) = announced.map_err(|error| error.to_string()).and(started) {
            log::error!("{error}");
        }
    }

    /// Returns the machines of the cluster, in the order of their names.
    ///
    /// # Errors
    /// If there is no store, or if it cannot be used.
    pub(crate) fn machines(&self) -> Result<Vec<MachineEntry>, String> {
        let connected = self.cluster.as_ref().ok_or("[cluster] has no `store`")?;
        let read = connected.values.read_all(MACHINES).map_err(|error| error.to_string())?;
        // A newer version may describe itself in another way.
        let entries = read.iter().filter_map(|(_, entry)| serde_json::from_slice(entry).ok());
        let mut machines: Vec<MachineEntry> = entries.collect();
        machines.sort_by(|a, b| (&a.host, a.pid).cmp(&(&b.host, b.pid)));
        Ok(machines)
    }

    /// Passes a purge on to the other machines.
    pub(crate) async fn publish(&self, purge: &[u8]) -> PublishedPurge {
        let Some(connected) = &self.cluster else { return PublishedPurge::OnlyHere };
        match connected.cluster.publish(purge).await {
            Published::Sent => PublishedPurge::Sent,
            Published::Pending => PublishedPurge::Pending,
            _ => PublishedPurge::Refused,
        }
    }

    /// Returns the state and the counts; `None` without a store.
    pub(crate) fn report(&self) -> Option<ClusterReport> {
        let status = self.cluster.as_ref()?.cluster.status();
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
        let error = self.cluster.as_ref()?.cluster.check().err()?;
        let message = format!(
            "{error}; while the store cannot be used, each machine has its part of the rate limits, \
             purges wait, and no certificates are ordered"
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
