//! [`Snapshot`] → Prometheus' text format, version 0.0.4. Pure.

use std::fmt::{Display, Write};

use weft_upstream::metrics::{BUCKET_BOUNDS, HistogramTotals};
use weft_upstream::{UpstreamReport, UpstreamState};

use super::snapshot::{
    CacheFiles, CacheTotals, Certificate, CertificateFailure, CertificateFile, LostLines, Route,
    Snapshot, Stream, UnavailableRoute, Upstream, Worker,
};
use crate::sections::cluster::ClusterReport;
use crate::sections::tracing::SpanCounts;
use crate::stream::TargetReport;

pub(super) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Formats all metrics. The format requires that all samples of one metric family are contiguous.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut page = Page(String::new());
    page.program(snapshot);
    page.process(snapshot);
    page.workers(&snapshot.workers);
    page.routes(&snapshot.routes);
    page.upstreams(&snapshot.upstreams);
    page.streams(&snapshot.streams);
    page.certificates(&snapshot.certificates, &snapshot.certificate_files);
    page.certificate_failures(&snapshot.certificate_failures);
    page.lost_log_lines(&snapshot.lost_log_lines);
    page.unavailable_routes(&snapshot.unavailable_routes);
    page.caches(&snapshot.routes, snapshot.cache);
    page.spans(snapshot.spans);
    page.cluster(snapshot.cluster);
    page.0
}

type Labels<'a> = &'a [(&'a str, &'a str)];

struct Page(String);

impl Page {
    fn program(&mut self, snapshot: &Snapshot) {
        let configuration = &snapshot.configuration;
        self.gauge("weft_build_info", "Version of the running program, as a label.");
        self.sample("weft_build_info", &[("version", snapshot.version)], 1);
        self.gauge(
            "weft_config_loaded_timestamp_seconds",
            "Unix time at which the active configuration was loaded.",
        );
        self.sample("weft_config_loaded_timestamp_seconds", &[], configuration.loaded);
        self.gauge(
            "weft_config_last_reload_successful",
            "Whether the last reload succeeded; 1 if there was none.",
        );
        let is_good = !configuration.has_last_reload_failed;
        self.sample("weft_config_last_reload_successful", &[], u8::from(is_good));
        self.counter("weft_config_reloads_total", "Reloads of the configuration.");
        for (result, count) in
            [("success", configuration.reloads), ("failure", configuration.failed_reloads)]
        {
            self.sample("weft_config_reloads_total", &[("result", result)], count);
        }
    }

    /// Process metrics, with the names that the Prometheus client libraries use.
    fn process(&mut self, snapshot: &Snapshot) {
        let process = &snapshot.process;
        self.gauge("process_start_time_seconds", "Unix time at which the process was started.");
        self.sample("process_start_time_seconds", &[], snapshot.started);
        self.counter("process_cpu_seconds_total", "CPU time in user and system mode.");
        self.sample("process_cpu_seconds_total", &[], process.cpu_seconds);
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory size.", process.resident_bytes),
            ("process_open_fds", "Open file descriptors.", process.open_descriptors),
            (
                "process_max_fds",
                "Maximum number of open file descriptors.",
                process.max_descriptors,
            ),
        ] {
            if let Some(value) = value {
                self.gauge(name, help);
                self.sample(name, &[], value);
            }
        }
    }

    fn certificates(&mut self, certificates: &[Certificate], files: &[CertificateFile]) {
        if certificates.is_empty() && files.is_empty() {
            return;
        }
        self.gauge("weft_certificate_expiry_seconds", "Unix time at which a certificate expires.");
        for Certificate { name, expires, .. } in certificates {
            if let Some(expires) = expires {
                self.sample("weft_certificate_expiry_seconds", &[("name", name)], expires);
            }
        }
        for CertificateFile { file, names, expires } in files {
            let name = names.first().map_or("", String::as_str);
            let labels = [("name", name), ("file", file)];
            self.sample("weft_certificate_expiry_seconds", &labels, expires);
        }
        if certificates.is_empty() {
            return;
        }
        self.gauge(
            "weft_certificate_order_failures",
            "Failed orders of a certificate since the last one that succeeded.",
        );
        for Certificate { name, failures, .. } in certificates {
            self.sample("weft_certificate_order_failures", &[("name", name)], failures);
        }
    }

    fn certificate_failures(&mut self, failures: &[CertificateFailure]) {
        if failures.is_empty() {
            return;
        }
        self.gauge(
            "weft_certificate_reload_failed",
            "1 for a file that could not be used when it was read the last time.",
        );
        for CertificateFailure { file, .. } in failures {
            self.sample("weft_certificate_reload_failed", &[("file", file)], 1);
        }
    }

    fn lost_log_lines(&mut self, logs: &[LostLines]) {
        self.counter("weft_log_lines_lost_total", "Lines that could not be written to a log.");
        for LostLines { log, lines } in logs {
            self.sample("weft_log_lines_lost_total", &[("log", log)], lines);
        }
    }

    fn unavailable_routes(&mut self, routes: &[UnavailableRoute]) {
        if routes.is_empty() {
            return;
        }
        self.gauge(
            "weft_route_unavailable",
            "1 for a route that responds with 503, because it could not be opened.",
        );
        for UnavailableRoute { name, .. } in routes {
            let labels = [("host", &*name.host), ("route", &*name.prefix)];
            self.sample("weft_route_unavailable", &labels, 1);
        }
    }

    fn caches(&mut self, routes: &[Route], totals: Option<CacheTotals>) {
        let Some(totals) = totals else { return };
        let caches = || routes.iter().filter_map(|route| Some((route, route.cache?)));
        self.counter("weft_cache_requests_total", "Requests of routes with a cache, by result.");
        for (route, counts) in caches() {
            for (result, count) in counts.results() {
                let labels = [route.labels().as_slice(), &[("result", result)]].concat();
                self.sample("weft_cache_requests_total", &labels, count);
            }
        }
        self.counter("weft_cache_sent_bytes_total", "Bytes of content sent from the store.");
        for (route, counts) in caches() {
            self.sample("weft_cache_sent_bytes_total", &route.labels(), counts.bytes_sent);
        }
        let name = "weft_cache_age_seconds_total";
        self.counter(name, "Sum of the ages of stored responses that were sent.");
        for (route, counts) in caches() {
            self.sample(name, &route.labels(), counts.age_seconds);
        }
        self.gauge("weft_cache_memory_bytes", "Memory of stored responses.");
        self.sample("weft_cache_memory_bytes", &[], totals.memory_bytes);
        self.gauge("weft_cache_entries", "Stored responses.");
        self.sample("weft_cache_entries", &[], totals.entries);
        self.counter("weft_cache_evicted_total", "Responses that left the store for others.");
        self.sample("weft_cache_evicted_total", &[], totals.evicted);
        if let Some(files) = totals.on_disk {
            self.cache_files(files);
        }
    }

    fn cache_files(&mut self, files: CacheFiles) {
        self.gauge("weft_cache_disk_bytes", "Size of the files of stored responses.");
        self.sample("weft_cache_disk_bytes", &[], files.bytes);
        self.gauge("weft_cache_files", "Files of stored responses.");
        self.sample("weft_cache_files", &[], files.responses);
        self.counter("weft_cache_files_total", "Files of stored responses, by event.");
        for (event, count) in [
            ("loaded", files.loaded),
            ("evicted", files.evicted),
            ("skipped", files.skipped),
            ("damaged", files.damaged),
        ] {
            self.sample("weft_cache_files_total", &[("event", event)], count);
        }
    }

    fn spans(&mut self, spans: Option<SpanCounts>) {
        let Some(SpanCounts { exported, failed, dropped }) = spans else { return };
        self.counter("weft_spans_total", "Spans of sampled requests, by their fate.");
        for (result, count) in [("exported", exported), ("failed", failed), ("dropped", dropped)] {
            self.sample("weft_spans_total", &[("result", result)], count);
        }
    }

    fn cluster(&mut self, report: Option<ClusterReport>) {
        let Some(report) = report else { return };
        self.gauge("weft_cluster_store_connected", "1 if the store of the cluster answers.");
        self.sample("weft_cluster_store_connected", &[], u8::from(report.is_connected));
        self.gauge("weft_cluster_servers", "Servers of the cluster, as the store last reported.");
        self.sample("weft_cluster_servers", &[], report.servers);
        self.counter("weft_cluster_messages_total", "Messages between the servers of the cluster.");
        for (result, count) in [
            ("published", report.published),
            ("received", report.received),
            ("forged", report.forged),
        ] {
            self.sample("weft_cluster_messages_total", &[("result", result)], count);
        }
        self.counter("weft_cluster_gaps_total", "Interruptions in which messages were lost.");
        self.sample("weft_cluster_gaps_total", &[], report.gaps);
    }

    fn workers(&mut self, workers: &[Worker]) {
        self.counter("weft_connections_accepted_total", "Accepted connections.");
        for worker in workers {
            let labels = [("worker", &*worker.name)];
            self.sample("weft_connections_accepted_total", &labels, worker.accepted_connections);
        }
        self.gauge("weft_connections_open", "Open connections.");
        for worker in workers {
            let labels = [("worker", &*worker.name)];
            self.sample("weft_connections_open", &labels, worker.open_connections);
        }
        self.counter("weft_responses_total", "Responses, including those to malformed requests.");
        for worker in workers {
            for (class, count) in &worker.responses {
                let labels = [("worker", &*worker.name), ("code", class)];
                self.sample("weft_responses_total", &labels, count);
            }
        }
        self.counter("weft_response_body_bytes_total", "Bytes of response bodies sent.");
        for worker in workers {
            let labels = [("worker", &*worker.name)];
            self.sample("weft_response_body_bytes_total", &labels, worker.response_body_bytes);
        }
        self.counter(
            "weft_errors_total",
            "Errors, by the party that has to act: peer, application or system.",
        );
        for worker in workers {
            let errors = &worker.errors;
            for (fault, count) in [
                ("peer", errors.peer),
                ("application", errors.application),
                ("system", errors.system),
            ] {
                let labels = [("worker", &*worker.name), ("fault", fault)];
                self.sample("weft_errors_total", &labels, count);
            }
        }
    }

    fn routes(&mut self, routes: &[Route]) {
        self.counter("weft_requests_total", "Requests, by route and status class.");
        for route in routes {
            for (class, count) in &route.requests {
                let labels = [route.labels().as_slice(), &[("code", *class)]].concat();
                self.sample("weft_requests_total", &labels, count);
            }
        }
        self.gauge("weft_requests_in_flight", "Requests waiting for a response.");
        for route in routes {
            self.sample("weft_requests_in_flight", &route.labels(), route.in_flight);
        }
        let name = "weft_request_duration_seconds";
        self.family(
            name,
            "histogram",
            "Time from the end of a request's head to the head of its response.",
        );
        for route in routes {
            self.histogram(name, &route.labels(), &route.durations);
        }
    }

    fn upstreams(&mut self, upstreams: &[Upstream]) {
        if upstreams.is_empty() {
            return;
        }
        self.upstream_states(upstreams);
        self.upstream_requests(upstreams);
        self.upstream_connections(upstreams);
        self.upstream_times(upstreams);
    }

    fn upstream_states(&mut self, upstreams: &[Upstream]) {
        self.gauge("weft_upstream_up", "Whether the upstream is healthy.");
        for upstream in upstreams {
            let is_up = upstream.report.state == UpstreamState::Up;
            self.sample("weft_upstream_up", &upstream.labels(), u8::from(is_up));
        }
        self.gauge("weft_upstream_state", "1 for the current state of the upstream.");
        for upstream in upstreams {
            for state in UpstreamState::ALL {
                let labels = [upstream.labels().as_slice(), &[("state", state.name())]].concat();
                let is_current = upstream.report.state == state;
                self.sample("weft_upstream_state", &labels, u8::from(is_current));
            }
        }
        self.gauge(
            "weft_upstream_weight",
            "Weight of the upstream, as configured or as set since.",
        );
        for upstream in upstreams {
            self.sample("weft_upstream_weight", &upstream.labels(), upstream.report.weight);
        }
    }

    fn upstream_requests(&mut self, upstreams: &[Upstream]) {
        type Count = (&'static str, &'static str, fn(&Upstream) -> u64);
        let counters: [Count; 2] = [
            (
                "weft_upstream_requests_total",
                "Requests sent to the upstream, including retries.",
                |upstream| upstream.report.requests,
            ),
            ("weft_upstream_failures_total", "Failures caused by the upstream.", |upstream| {
                upstream.report.failures
            }),
        ];
        for (name, help, count) in counters {
            self.counter(name, help);
            for upstream in upstreams {
                self.sample(name, &upstream.labels(), count(upstream));
            }
        }
        if upstreams.iter().any(|upstream| upstream.report.is_mirror) {
            self.counter(
                "weft_mirror_dropped_total",
                "Requests of which the mirror should have got a copy, and did not.",
            );
            for upstream in upstreams.iter().filter(|upstream| upstream.report.is_mirror) {
                let dropped = upstream.report.dropped_copies;
                self.sample("weft_mirror_dropped_total", &upstream.labels(), dropped);
            }
        }
        self.counter(
            "weft_upstream_retries_total",
            "Requests sent again after a failed attempt, by its failure.",
        );
        for upstream in upstreams {
            for (reason, count) in &upstream.report.retries_by_reason {
                let labels = [upstream.labels().as_slice(), &[("reason", *reason)]].concat();
                self.sample("weft_upstream_retries_total", &labels, count);
            }
        }
    }

    fn upstream_connections(&mut self, upstreams: &[Upstream]) {
        self.gauge("weft_upstream_connections", "Connections to the upstream, by state.");
        for upstream in upstreams {
            let report = &upstream.report;
            for (state, count) in
                [("in_use", report.connections_in_use), ("idle", report.connections_idle)]
            {
                let labels = [upstream.labels().as_slice(), &[("state", state)]].concat();
                self.sample("weft_upstream_connections", &labels, count);
            }
        }
        self.gauge("weft_upstream_queue_length", "Requests waiting for a connection.");
        for upstream in upstreams {
            self.sample("weft_upstream_queue_length", &upstream.labels(), upstream.report.queued);
        }
    }

    fn upstream_times(&mut self, upstreams: &[Upstream]) {
        type Times = (&'static str, &'static str, fn(&UpstreamReport) -> &HistogramTotals);
        let histograms: [Times; 3] = [
            (
                "weft_upstream_response_seconds",
                "Time from sending a request to the head of its response.",
                |report| &report.durations,
            ),
            (
                "weft_upstream_connect_seconds",
                "Time to establish a connection, with name resolution and TLS.",
                |report| &report.connect_times,
            ),
            (
                "weft_upstream_queue_seconds",
                "Time of requests that have waited for a connection.",
                |report| &report.queue_times,
            ),
        ];
        for (name, help, times) in histograms {
            self.family(name, "histogram", help);
            for upstream in upstreams {
                self.histogram(name, &upstream.labels(), times(&upstream.report));
            }
        }
    }

    fn streams(&mut self, streams: &[Stream]) {
        if streams.is_empty() {
            return;
        }
        let targets: Vec<_> = streams
            .iter()
            .flat_map(|stream| {
                stream.upstreams.iter().map(|target| (stream.labels(target), target))
            })
            .collect();
        type Value = (&'static str, &'static str, fn(&TargetReport) -> u64);
        let gauges: [Value; 2] = [
            ("weft_stream_up", "1 if the upstream of the stream is healthy.", |target| {
                (target.state == UpstreamState::Up).into()
            }),
            ("weft_stream_connections_open", "Open connections to the upstream.", |target| {
                target.open as u64
            }),
        ];
        for (name, help, value) in gauges {
            self.gauge(name, help);
            targets.iter().for_each(|(labels, it)| self.sample(name, labels, value(it)));
        }
        let counters: [Value; 2] = [
            ("weft_stream_connections_total", "Connections to the upstream.", |target| {
                target.connections
            }),
            ("weft_stream_failures_total", "Failures to connect to the upstream.", |target| {
                target.failures
            }),
        ];
        for (name, help, value) in counters {
            self.counter(name, help);
            targets.iter().for_each(|(labels, it)| self.sample(name, labels, value(it)));
        }
        self.counter("weft_stream_bytes_total", "Bytes received from clients and sent to them.");
        for (labels, target) in &targets {
            for (direction, bytes) in
                [("received", target.bytes_received), ("sent", target.bytes_sent)]
            {
                let labels = [labels.as_slice(), &[("direction", direction)]].concat();
                self.sample("weft_stream_bytes_total", &labels, bytes);
            }
        }
        let name = "weft_stream_duration_seconds";
        self.family(name, "histogram", "Time from a connection to the upstream to its end.");
        targets.iter().for_each(|(labels, it)| self.histogram(name, labels, &it.durations));
        let name = "weft_stream_ends_total";
        self.counter(name, "Ended connections of clients, by reason.");
        for stream in streams {
            for (reason, count) in &stream.ends {
                self.sample(name, &[("stream", &stream.stream), ("reason", reason)], count);
            }
        }
    }

    // -- text format

    fn counter(&mut self, name: &str, help: &str) {
        self.family(name, "counter", help);
    }

    fn gauge(&mut self, name: &str, help: &str) {
        self.family(name, "gauge", help);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn histogram(&mut self, name: &str, labels: Labels<'_>, durations: &HistogramTotals) {
        let bounds = BUCKET_BOUNDS.iter().map(|bound| bound.as_secs_f64().to_string());
        let bounds = bounds.chain(["+Inf".to_owned()]);
        let mut count = 0;
        for (bound, in_bucket) in bounds.zip(durations.buckets) {
            // Buckets are cumulative in the text format.
            count += in_bucket;
            let labels = [labels, &[("le", &*bound)]].concat();
            self.sample(&format!("{name}_bucket"), &labels, count);
        }
        self.sample(&format!("{name}_sum"), labels, durations.sum_seconds);
        self.sample(&format!("{name}_count"), labels, count);
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let text = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
        let labels: Vec<String> = labels.iter().map(text).collect();
        match labels.is_empty() {
            true => self.line(format_args!("{name} {value}")),
            false => self.line(format_args!("{name}{{{}}} {value}", labels.join(","))),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a String is infallible");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Route {
    fn labels(&self) -> [(&str, &str); 2] {
        [("host", &self.name.host), ("route", &self.name.prefix)]
    }
}

impl Stream {
    fn labels<'a>(&'a self, target: &'a TargetReport) -> [(&'a str, &'a str); 3] {
        [
            ("stream", &self.stream),
            ("server_name", &target.server_name),
            ("upstream", &target.upstream),
        ]
    }
}

impl Upstream {
    fn labels(&self) -> [(&str, &str); 3] {
        let Upstream { route, report } = self;
        [("host", &route.host), ("route", &route.prefix), ("upstream", &report.url)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weft_upstream::metrics::Histogram;

    #[test]
    fn formats_and_escapes_samples() {
        for (labels, value, expected) in [
            (&[][..], 0.5, "a 0.5\n"),
            (&[("b", "c")], 1.0, "a{b=\"c\"} 1\n"),
            (&[("b", "c"), ("d", "")], 1e9, "a{b=\"c\",d=\"\"} 1000000000\n"),
            (&[("b", "\\ \" \n {},=é")], 0.0, "a{b=\"\\\\ \\\" \\n {},=é\"} 0\n"),
        ] {
            let mut page = Page(String::new());
            page.sample("a", labels, value);
            assert_eq!(page.0, expected);
        }
    }

    #[test]
    fn buckets_are_cumulative() {
        let (histogram, mut durations) = (Histogram::default(), HistogramTotals::default());
        for millis in [1, 1, 2_000, 20_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        durations.add(&histogram);
        let mut page = Page(String::new());
        page.histogram("a", &[("b", "c")], &durations);
        for (line, is_present) in [
            ("a_bucket{b=\"c\",le=\"0.0001\"} 0\n", true),
            ("a_bucket{b=\"c\",le=\"0.001\"} 2\n", true),
            ("a_bucket{b=\"c\",le=\"1\"} 2\n", true),
            ("a_bucket{b=\"c\",le=\"2.5\"} 3\n", true),
            ("a_bucket{b=\"c\",le=\"10\"} 3\n", true),
            ("a_bucket{b=\"c\",le=\"+Inf\"} 4\n", true),
            ("a_sum{b=\"c\"} 22.002\n", true),
            ("a_count{b=\"c\"} 4\n", true),
            ("a_bucket{b=\"c\",le=\"20\"} 4\n", false),
        ] {
            assert_eq!(page.0.contains(line), is_present, "{line} in {}", page.0);
        }
    }
}
