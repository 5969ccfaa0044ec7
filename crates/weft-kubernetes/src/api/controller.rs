//! Objects of the cluster → plans, which are applied one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::{mpsc, watch};
use tokio::time::{interval, sleep};

use super::lease::{self, LeaseName};
use super::status::StatusContext;
use super::watch::Change;
use super::writer::{self, Write};
use crate::objects::{ClusterObjects, Effect, Kind, ObjectName, ObjectRef};
use crate::plan::{ClusterPlan, Endpoint, ObjectStatus, PemIdentity, PlanSettings};

/// Number of changes that wait for the controller.
const QUEUED_CHANGES: usize = 1_024;

/// Minimum time from the end of a plan to the next one. A plan that takes longer delays the next
/// one by the time that it took, so that at most half of a processor is used.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Interval at which all statuses are compared: a request of the writer may have failed.
const COMPARE_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum number of times that a plan is made without the objects that were refused before.
const MAX_REFUSALS: usize = 32;

/// Settings of the controller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ControllerSettings {
    /// Settings of the translation.
    pub plan: PlanSettings,
    /// File with the address and the credentials of the API server; by default the
    /// service account of the pod, or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the lease of the writer of statuses. Default `default`.
    pub lease_namespace: String,
    /// Name of the lease. Default `weft`.
    pub lease_name: String,
    /// Name of this process in the lease, which no other one may have.
    pub identity: String,
}

impl ControllerSettings {
    /// Creates settings for a process with this name.
    pub fn new(identity: String) -> ControllerSettings {
        ControllerSettings {
            plan: PlanSettings::default(),
            kubeconfig: None,
            lease_namespace: "default".to_owned(),
            lease_name: "weft".to_owned(),
            identity,
        }
    }
}

/// A problem of the text of a configuration.
#[derive(Clone, Debug)]
pub struct TextProblem {
    /// Number of the line, counted from 1.
    pub line: Option<usize>,
    /// Explanation.
    pub message: String,
}

/// The server that serves the plans.
pub trait Target: Send {
    /// Sets the endpoints of a pool, from now on and for the next texts.
    fn set_endpoints(&mut self, pool: &str, endpoints: Vec<Endpoint>);

    /// Removes pools that no text names any more.
    fn retain_pools(&mut self, is_used: &dyn Fn(&str) -> bool);

    /// Sets the certificate for a server name.
    ///
    /// # Errors
    /// If the certificate or the key cannot be used.
    fn set_identity(&mut self, name: &str, identity: &PemIdentity) -> Result<(), String>;

    /// Removes the certificate for a server name.
    fn remove_identity(&mut self, name: &str);

    /// Returns the problems of a text.
    fn check(&mut self, text: &str) -> Vec<TextProblem>;

    /// Serves the text that was checked last, which has no problems, and returns true when it is in
    /// effect.
    fn apply(&mut self, text: String) -> impl Future<Output = bool> + Send;
}

/// Watches the cluster, and has a target serve its plans, until the process ends.
///
/// # Errors
/// If the API server has no address or no credentials.
pub async fn run(settings: ControllerSettings, target: impl Target) -> Result<(), String> {
    let client = connect(&settings).await?;
    let (sender, mut changes) = mpsc::channel(QUEUED_CHANGES);
    for kind in Kind::ALL {
        tokio::spawn(super::watch::watch(client.clone(), kind, sender.clone()));
    }
    drop(sender);
    let (writes, receiver) = mpsc::channel(1);
    tokio::spawn(writer::write(client.clone(), receiver));
    let (is_writer, mut writer) = watch::channel(false);
    let lease = LeaseName {
        namespace: settings.lease_namespace.clone(),
        name: settings.lease_name.clone(),
        holder: settings.identity.clone(),
    };
    tokio::spawn(lease::hold(client, lease, is_writer));
    let mut controller = Controller::new(settings, target, writes);
    let mut tick = interval(COMPARE_INTERVAL);
    loop {
        tokio::select! {
            _ = tick.tick() => controller.must_compare = true,
            change = changes.recv() => {
                let Some(change) = change else { return Ok(()) };
                controller.take(change);
                while let Ok(change) = changes.try_recv() {
                    controller.take(change);
                }
            }
            changed = writer.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                controller.is_writer = *writer.borrow_and_update();
                controller.must_compare = true;
            }
        }
        controller.update().await;
    }
}

async fn connect(settings: &ControllerSettings) -> Result<Client, String> {
    let config = match &settings.kubeconfig {
        Some(path) => {
            let cannot = |error| format!("cannot read {}: {error}", path.display());
            let kubeconfig = Kubeconfig::read_from(path).map_err(cannot)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(cannot)?
        }
        None => Config::infer()
            .await
            .map_err(|error| format!("there is no address of an API server: {error}"))?,
    };
    Client::try_from(config).map_err(|error| format!("cannot use the API server: {error}"))
}

struct Controller<T> {
    settings: ControllerSettings,
    target: T,
    writes: mpsc::Sender<Vec<Write>>,
    objects: ClusterObjects,
    /// Kinds whose objects have been listed.
    listed: BTreeSet<Kind>,
    effect: Effect,
    plan: ClusterPlan,
    has_plan: bool,
    /// Certificates that are served.
    identities: BTreeMap<String, PemIdentity>,
    /// Objects whose parts of the text have problems, until they change.
    refused: BTreeMap<ObjectRef, String>,
    is_writer: bool,
    /// Set if the statuses of all objects are to be compared.
    must_compare: bool,
    /// Objects whose statuses are to be compared.
    compared: BTreeSet<ObjectRef>,
    next_plan: Instant,
}

impl<T: Target> Controller<T> {
    fn new(
        settings: ControllerSettings,
        target: T,
        writes: mpsc::Sender<Vec<Write>>,
    ) -> Controller<T> {
        Controller {
            settings,
            target,
            writes,
            objects: ClusterObjects::default(),
            listed: BTreeSet::new(),
            effect: Effect::None,
            plan: ClusterPlan::default(),
            has_plan: false,
            identities: BTreeMap::new(),
            refused: BTreeMap::new(),
            is_writer: false,
            must_compare: false,
            compared: BTreeSet::new(),
            next_plan: Instant::now(),
        }
    }

    /// Changes the objects in memory.
    fn take(&mut self, change: Change) {
        match change {
            Change::Set(kind, value) => {
                let text = |name: &str| {
                    let value = value.pointer(&format!("/metadata/{name}"));
                    value.and_then(|value| value.as_str()).unwrap_or_default().to_owned()
                };
                let name = ObjectName { namespace: text("namespace"), name: text("name") };
                let effect = self.objects.set(kind, value);
                self.changed(ObjectRef { kind, name }, effect);
            }
            Change::Remove(kind, name) => {
                let effect = self.objects.remove(kind, &name);
                self.changed(ObjectRef { kind, name }, effect);
            }
            Change::Listed(kind, names) => {
                for name in self.objects.names(kind) {
                    if !names.contains(&name) {
                        let effect = self.objects.remove(kind, &name);
                        self.changed(ObjectRef { kind, name }, effect);
                    }
                }
                self.listed.insert(kind);
            }
        }
    }

    fn changed(&mut self, object: ObjectRef, effect: Effect) {
        self.effect = self.effect.max(effect);
        if effect == Effect::Plan {
            self.refused.remove(&object);
        }
        self.compared.insert(object);
    }

    /// Makes and applies the plan of the objects, once all of them are known.
    async fn update(&mut self) {
        if self.listed.len() < Kind::ALL.len() {
            return;
        }
        match (self.has_plan, self.effect) {
            (false, _) | (true, Effect::Plan) => {
                let now = Instant::now();
                if now < self.next_plan {
                    sleep(self.next_plan - now).await;
                }
                let begin = Instant::now();
                self.objects.take_changed_services();
                self.make_plan().await;
                self.next_plan = Instant::now() + begin.elapsed().max(MIN_INTERVAL);
                self.must_compare = true;
            }
            (true, Effect::Endpoints) => self.update_endpoints(),
            (true, Effect::None) => {}
        }
        self.effect = Effect::None;
        self.write_statuses();
    }

    /// Sets the endpoints of the pools whose services have changed.
    fn update_endpoints(&mut self) {
        for service in self.objects.take_changed_services() {
            for name in self.plan.pools_of(&service) {
                if let Some(pool) = self.plan.pools.get(name) {
                    self.target.set_endpoints(name, pool.endpoints(&self.objects));
                }
            }
        }
    }

    async fn make_plan(&mut self) {
        let Some(plan) = self.checked_plan() else { return };
        for (name, pool) in &plan.pools {
            self.target.set_endpoints(name, pool.endpoints(&self.objects));
        }
        self.update_identities(&plan);
        if (plan.text != self.plan.text || !self.has_plan)
            && !self.target.apply(plan.text.clone()).await
        {
            log::error!("the plan of the cluster could not be applied; the former one is served");
            return;
        }
        let former = std::mem::replace(&mut self.plan, plan);
        self.has_plan = true;
        self.target.retain_pools(&|name| self.plan.pools.contains_key(name));
        self.report_events(&former);
    }

    /// Makes a plan without the objects whose parts of the text have problems.
    fn checked_plan(&mut self) -> Option<ClusterPlan> {
        for _ in 0..MAX_REFUSALS {
            let plan = ClusterPlan::new(&self.objects, &self.settings.plan, &self.refused);
            if self.has_plan && plan.text == self.plan.text {
                return Some(plan);
            }
            let problems = self.target.check(&plan.text);
            if problems.is_empty() {
                return Some(plan);
            }
            let mut has_refused = false;
            for TextProblem { line, message } in problems {
                match line.and_then(|line| plan.owner_of_line(line)) {
                    Some(owner) => {
                        log::warn!("{owner} is left out: {message}");
                        has_refused |= self.refused.insert(owner.clone(), message).is_none();
                    }
                    None => log::error!("the plan of the cluster has a problem: {message}"),
                }
            }
            if !has_refused {
                break;
            }
        }
        log::error!("no plan of the cluster can be served; the former one stays in effect");
        None
    }

    /// Serves the certificates of a plan. A certificate that cannot be used leaves the former one
    /// of its name in effect.
    fn update_identities(&mut self, plan: &ClusterPlan) {
        let removed: Vec<_> = self.identities.keys().cloned().collect();
        for name in removed.into_iter().filter(|name| !plan.identities.contains_key(name)) {
            self.target.remove_identity(&name);
            self.identities.remove(&name);
        }
        for (name, identity) in &plan.identities {
            if self.identities.get(name) == Some(identity) {
                continue;
            }
            match self.target.set_identity(name, identity) {
                Ok(()) => drop(self.identities.insert(name.clone(), identity.clone())),
                Err(error) => log::warn!("the certificate for {name} cannot be used: {error}"),
            }
        }
    }

    /// Logs the events that the former plan did not have, and sends them.
    fn report_events(&self, former: &ClusterPlan) {
        let new: Vec<_> = self.plan.events.difference(&former.events).cloned().collect();
        for event in &new {
            log::warn!("{}: {}", event.object, event.message);
        }
        if self.is_writer && !new.is_empty() {
            let uid = |object: &ObjectRef| {
                let known = self.objects.status_of(object);
                known.map(|(metadata, _)| metadata.uid.clone()).unwrap_or_default()
            };
            let event =
                |event: crate::plan::ObjectEvent| Write::Event { uid: uid(&event.object), event };
            // A full queue drops events, which are in the log.
            let _ = self.writes.try_send(new.into_iter().map(event).collect());
        }
    }

    /// Sends the statuses that the API server does not have yet.
    fn write_statuses(&mut self) {
        if !self.is_writer || !self.has_plan {
            self.compared.clear();
            return;
        }
        let objects: Vec<ObjectRef> = match self.must_compare {
            true => {
                let kinds = [Kind::GatewayClass, Kind::Gateway, Kind::HttpRoute, Kind::Ingress];
                let names =
                    |kind| self.objects.names(kind).into_iter().map(move |name| (kind, name));
                let all = kinds.into_iter().flat_map(names);
                all.map(|(kind, name)| ObjectRef { kind, name }).collect()
            }
            false => self.compared.iter().cloned().collect(),
        };
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let changed: Vec<_> =
            objects.into_iter().filter_map(|object| self.changed_status(object, &now)).collect();
        // If former statuses are still being written, the next change compares all again.
        self.must_compare = !changed.is_empty() && self.writes.try_send(changed).is_err();
        self.compared.clear();
    }

    fn changed_status(&self, object: ObjectRef, now: &str) -> Option<Write> {
        let (metadata, current) = self.objects.status_of(&object)?;
        let none = ObjectStatus::Route(Vec::new());
        let planned = match (self.plan.statuses.get(&object), object.kind) {
            (Some(planned), _) => planned,
            // A route that has left the Gateways of this controller.
            (None, Kind::HttpRoute) if current.is_object() => &none,
            (None, _) => return None,
        };
        let controller = &self.settings.plan.gateway_controller;
        let context = StatusContext { controller, generation: metadata.generation, now };
        let status = context.changed(planned, current)?;
        Some(Write::Status { object, version: metadata.resource_version.clone(), status })
    }
}
