//! All metrics at one point in time. The JSON form is derived by serde.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use weft::cache::{Statistics, Store};
use weft::tls::{ReloadFailure, UsedCertificate};
use weft_acme::{Acme, CertificateInfo, Name};
use weft_upstream::UpstreamReport;
use weft_upstream::metrics::{BUCKET_BOUNDS, HistogramTotals};

use super::process::Process;
use super::registry::{Configuration, MetricsRegistry, unix_seconds};
use super::worker::WorkerCounts;
use crate::logs::lost_lines;
use crate::open::Opened;
use crate::open::active_plan::ActivePlan;
use crate::route::RouteName;
use crate::router::{ByClass, RouteMetrics, Routing};
use crate::sections::cluster::ClusterReport;
use crate::sections::tracing::SpanCounts;
use crate::stream::{EndTotals, TargetReport};

/// All metrics at one point in time. Durations are in seconds, points in time in Unix seconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Snapshot {
    pub(super) version: &'static str,
    pub(super) time: f64,
    pub(super) started: f64,
    pub(super) process: Process,
    pub(super) configuration: Configuration,
    /// Inclusive upper bounds of the buckets of all histograms; one more bucket counts everything
    /// above.
    pub(super) bucket_bounds: Vec<f64>,
    pub(super) workers: Vec<Worker>,
    pub(super) routes: Vec<Route>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) streams: Vec<Stream>,
    /// Certificates that are ordered.
    pub(super) certificates: Vec<Certificate>,
    /// Certificates of files.
    pub(super) certificate_files: Vec<CertificateFile>,
    /// Files of certificates and keys that could not be used when they were read the last time.
    pub(super) certificate_failures: Vec<CertificateFailure>,
    /// Routes that respond with 503, because they could not be opened.
    pub(super) unavailable_routes: Vec<UnavailableRoute>,
    /// Lines of logs that were lost.
    pub(super) lost_log_lines: Vec<LostLines>,
    /// The store of responses; `None` if no route has a cache.
    pub(super) cache: Option<CacheTotals>,
    /// Spans of requests; `None` if none are exported.
    pub(super) spans: Option<SpanCounts>,
    /// The machine in its cluster; `None` without a store.
    pub(super) cluster: Option<ClusterReport>,
}

/// The certificate of a name.
#[derive(Debug, Serialize)]
pub(super) struct Certificate {
    pub(super) name: String,
    /// `None`: it has not been issued yet.
    pub(super) expires: Option<f64>,
    pub(super) next_order: Option<f64>,
    /// Failures since the last success.
    pub(super) failures: u32,
    pub(super) last_error: Option<String>,
}

/// Lines of a log that were lost.
#[derive(Debug, Serialize)]
pub(super) struct LostLines {
    pub(super) log: String,
    pub(super) lines: u64,
}

/// A certificate of a file.
#[derive(Debug, Serialize)]
pub(super) struct CertificateFile {
    pub(super) file: String,
    pub(super) names: Vec<String>,
    pub(super) expires: f64,
}

/// A route that could not be opened.
#[derive(Debug, Serialize)]
pub(super) struct UnavailableRoute {
    #[serde(flatten)]
    pub(super) name: RouteName,
    pub(super) error: String,
}

/// A file of certificates or keys that cannot be used. Its former version stays in use, if there is
/// one.
#[derive(Debug, Serialize)]
pub(super) struct CertificateFailure {
    pub(super) file: String,
    pub(super) error: String,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) accepted_connections: u64,
    pub(super) open_connections: u64,
    pub(super) responses: ByClass,
    pub(super) response_body_bytes: u64,
    pub(super) errors: Errors,
}

/// Errors by the party that has to act.
#[derive(Debug, Default, Serialize)]
pub(super) struct Errors {
    pub(super) peer: u64,
    pub(super) application: u64,
    pub(super) system: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Route {
    #[serde(flatten)]
    pub(super) name: RouteName,
    pub(super) requests: ByClass,
    pub(super) in_flight: u64,
    pub(super) durations: HistogramTotals,
    /// `None` if the route has no cache.
    pub(super) cache: Option<CacheCounts>,
}

/// An upstream, labeled with its (first) route.
#[derive(Debug, Serialize)]
pub(super) struct Upstream {
    #[serde(flatten)]
    pub(super) route: RouteName,
    #[serde(flatten)]
    pub(super) report: UpstreamReport,
}

/// A stream, with the addresses of its section.
#[derive(Debug, Serialize)]
pub(super) struct Stream {
    pub(super) stream: String,
    pub(super) upstreams: Vec<TargetReport>,
    pub(super) ends: EndTotals,
}

/// Requests of routes with a cache, by their results.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct CacheCounts {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) stale: u64,
    pub(super) revalidated: u64,
    pub(super) collapsed: u64,
    pub(super) bypassed: u64,
    pub(super) bytes_sent: u64,
    pub(super) age_seconds: u64,
}

impl CacheCounts {
    fn of(counts: Statistics) -> CacheCounts {
        CacheCounts {
            hits: counts.hits,
            misses: counts.misses,
            stale: counts.stale,
            revalidated: counts.revalidated,
            collapsed: counts.collapsed,
            bypassed: counts.bypassed,
            bytes_sent: counts.bytes_sent,
            age_seconds: counts.age_seconds,
        }
    }

    /// Returns the numbers of requests, with the labels of their results.
    pub(super) fn results(&self) -> [(&'static str, u64); 6] {
        [
            ("hit", self.hits),
            ("miss", self.misses),
            ("stale", self.stale),
            ("revalidated", self.revalidated),
            ("collapsed", self.collapsed),
            ("bypassed", self.bypassed),
        ]
    }
}

/// The store of responses.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct CacheTotals {
    #[serde(flatten)]
    pub(super) counts: CacheCounts,
    pub(super) memory_bytes: usize,
    pub(super) entries: usize,
    pub(super) evicted: u64,
    /// Counts of the files; `None` without a folder.
    pub(super) on_disk: Option<CacheFiles>,
}

/// Counts of the files of a response cache.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CacheFiles {
    pub(super) bytes: u64,
    pub(super) responses: usize,
    pub(super) index_bytes: usize,
    pub(super) evicted: u64,
    pub(super) skipped: u64,
    pub(super) damaged: u64,
    pub(super) loaded: u64,
    pub(super) is_scanned: bool,
}

impl CacheTotals {
    pub(super) fn of(store: &Store) -> CacheTotals {
        let (memory_bytes, entries, evicted) = store.totals();
        let on_disk = store.disk_totals().map(|totals| CacheFiles {
            bytes: totals.bytes,
            responses: totals.files,
            index_bytes: totals.index_bytes,
            evicted: totals.evicted,
            skipped: totals.skipped,
            damaged: totals.damaged,
            loaded: totals.loaded,
            is_scanned: totals.is_scanned,
        });
        let counts = CacheCounts::of(store.statistics());
        CacheTotals { counts, memory_bytes, entries, evicted, on_disk }
    }
}

/// The caches of routes.
type RouteCaches<'a> = HashMap<&'a RouteName, &'a weft::cache::Cache>;

impl Snapshot {
    /// Reads all metrics.
    pub(super) fn take(registry: &MetricsRegistry, active: &ActivePlan) -> Snapshot {
        let opened = &active.opened;
        let routing = &opened.routing;
        let workers = registry.workers();
        let mut workers: Vec<Worker> = workers.iter().map(|counts| worker(counts)).collect();
        // By length first, so that `weft-2` precedes `weft-10`.
        workers.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        let (metrics, unmatched) = (registry.route_metrics(), RouteName::unmatched());
        let caches: RouteCaches<'_> = routing.caches().collect();
        let names = routing.routes().map(|(name, _)| name).chain([&unmatched]);
        Snapshot {
            version: env!("CARGO_PKG_VERSION"),
            time: unix_seconds(SystemTime::now()),
            started: unix_seconds(registry.started()),
            process: Process::read(),
            configuration: registry.configuration(),
            bucket_bounds: BUCKET_BOUNDS.iter().map(|bound| bound.as_secs_f64()).collect(),
            workers,
            routes: names.map(|name| route(name, &metrics, &caches)).collect(),
            upstreams: upstreams(routing),
            streams: streams(opened),
            certificates: opened.acme().map_or_else(Vec::new, |acme| certificates(acme)),
            certificate_files: certificate_files(opened),
            certificate_failures: certificate_failures(opened),
            unavailable_routes: unavailable_routes(opened),
            lost_log_lines: lost_lines()
                .into_iter()
                .map(|(log, lines)| LostLines { log, lines })
                .collect(),
            cache: cache_totals(opened),
            spans: active.logs.tracer().map(|tracer| tracer.counts()),
            cluster: opened.cluster.as_ref().and_then(|cluster| cluster.report()),
        }
    }
}

fn certificates(acme: &Acme) -> Vec<Certificate> {
    let names = acme.certificates().into_iter();
    let certificate = |(name, info): (Name, CertificateInfo)| Certificate {
        name: name.to_string(),
        expires: info.not_after.map(unix_seconds),
        next_order: info.next_order.map(unix_seconds),
        failures: info.failures,
        last_error: info.last_error,
    };
    names.map(certificate).collect()
}

fn certificate_files(opened: &Opened) -> Vec<CertificateFile> {
    let used = opened.tls.iter().flat_map(|opened| opened.tls.certificates());
    let file = |used: UsedCertificate| {
        let (file, expires) = (used.file?, unix_seconds(used.validity.not_after));
        Some(CertificateFile { file: file.display().to_string(), names: used.names, expires })
    };
    used.filter_map(file).collect()
}

fn unavailable_routes(opened: &Opened) -> Vec<UnavailableRoute> {
    let all = opened.unavailable.iter();
    all.map(|it| UnavailableRoute { name: it.route.clone(), error: it.problem.to_string() })
        .collect()
}

fn certificate_failures(opened: &Opened) -> Vec<CertificateFailure> {
    let failures = opened.tls.iter().flat_map(|opened| opened.tls.reload_failures());
    let failure = |failure: ReloadFailure| CertificateFailure {
        file: failure.file.display().to_string(),
        error: failure.reason,
    };
    failures.map(failure).collect()
}

fn cache_totals(opened: &Opened) -> Option<CacheTotals> {
    let is_used = opened.routing.caches().next().is_some();
    is_used.then(|| CacheTotals::of(&opened.response_store.store))
}

fn worker(counts: &WorkerCounts) -> Worker {
    // `closed` is read first; otherwise it could exceed `accepted`.
    let closed = counts.closed.get();
    let accepted = counts.accepted.get();
    let mut responses = ByClass::new();
    counts.responses.add_to(&mut responses);
    // Every counted response has a status.
    responses.remove("none");
    Worker {
        name: counts.name.clone(),
        accepted_connections: accepted,
        open_connections: accepted.saturating_sub(closed),
        responses,
        response_body_bytes: counts.body_bytes.get(),
        errors: Errors {
            peer: counts.peer_errors.get(),
            application: counts.application_errors.get(),
            system: counts.system_errors.get(),
        },
    }
}

/// Adds up the metrics of a route over all workers.
fn route(name: &RouteName, metrics: &[Arc<RouteMetrics>], caches: &RouteCaches<'_>) -> Route {
    let (mut requests, mut durations, mut begun) = (ByClass::new(), HistogramTotals::default(), 0);
    for counts in metrics.iter().filter_map(|of_worker| of_worker.find(name)) {
        counts.outcomes.add_to(&mut requests);
        durations.add(&counts.durations);
        begun += counts.begun.get();
    }
    let in_flight = begun.saturating_sub(durations.count);
    let cache = caches.get(name).map(|cache| CacheCounts::of(cache.statistics()));
    Route { name: name.clone(), requests, in_flight, durations, cache }
}

/// Collects the upstreams of all routes. Routes with identical proxy settings share one proxy; its
/// upstreams are labeled with the first of these routes.
pub(super) fn upstreams(routing: &Routing) -> Vec<Upstream> {
    let mut known = HashSet::new();
    let mut all = Vec::new();
    for (route, app) in routing.routes() {
        if let Some(proxy) = app.proxy()
            && known.insert(proxy.identity())
        {
            let upstream = |report| Upstream { route: route.clone(), report };
            all.extend(proxy.report().into_iter().map(upstream));
        }
    }
    all
}

/// Collects the streams. The addresses of a section share one.
fn streams(opened: &Opened) -> Vec<Stream> {
    let mut addresses: Vec<_> = opened.streams.iter().collect();
    addresses.sort_by_key(|(address, _)| *address);
    let mut all: Vec<(*const crate::stream::Stream, Stream)> = Vec::new();
    for (address, stream) in addresses {
        match all.iter_mut().find(|(known, _)| *known == Arc::as_ptr(stream)) {
            Some((_, known)) => known.stream = format!("{} {address}", known.stream),
            None => {
                let (upstreams, ends) = (stream.report(), stream.end_totals());
                let report = Stream { stream: address.clone(), upstreams, ends };
                all.push((Arc::as_ptr(stream), report));
            }
        }
    }
    all.into_iter().map(|(_, stream)| stream).collect()
}
