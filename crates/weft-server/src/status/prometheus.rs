//! [`Snapshot`] → Prometheus' text format, version 0.0.4. Pure.

use std::fmt::{Display, Write};

use super::snapshot::{Route, Snapshot, Upstream, Worker};
use crate::apps::proxy::State;
use crate::counter::{BOUNDS, Durations};

pub(super) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics, which is read by families: all samples of one name come together.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut page = Page(String::new());
    page.program(snapshot);
    page.process(snapshot);
    page.workers(&snapshot.workers);
    page.routes(&snapshot.routes);
    page.upstreams(&snapshot.upstreams);
    page.0
}

type Labels<'a> = &'a [(&'a str, &'a str)];

struct Page(String);

impl Page {
    fn program(&mut self, snapshot: &Snapshot) {
        let configuration = &snapshot.configuration;
        self.gauge("weft_build_info", "The version that runs, as a label.");
        self.sample("weft_build_info", &[("version", snapshot.version)], 1);
        self.gauge(
            "weft_config_loaded_timestamp_seconds",
            "When the configuration was loaded, since 1970.",
        );
        self.sample("weft_config_loaded_timestamp_seconds", &[], configuration.loaded);
        self.gauge(
            "weft_config_last_reload_successful",
            "Whether the last reload has succeeded; 1 if there was none.",
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

    /// By the names that Prometheus' own libraries have for them.
    fn process(&mut self, snapshot: &Snapshot) {
        let process = &snapshot.process;
        self.gauge("process_start_time_seconds", "When the process was started, since 1970.");
        self.sample("process_start_time_seconds", &[], snapshot.started);
        self.counter("process_cpu_seconds_total", "Time on a processor.");
        self.sample("process_cpu_seconds_total", &[], process.cpu_seconds);
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory that is resident.", process.resident_bytes),
            ("process_open_fds", "Descriptors that are open.", process.open_descriptors),
            ("process_max_fds", "The most descriptors.", process.max_descriptors),
        ] {
            if let Some(value) = value {
                self.gauge(name, help);
                self.sample(name, &[], value);
            }
        }
    }

    fn workers(&mut self, workers: &[Worker]) {
        self.counter("weft_connections_accepted_total", "Connections that were accepted.");
        for worker in workers {
            let labels = [("worker", &*worker.name)];
            self.sample("weft_connections_accepted_total", &labels, worker.accepted_connections);
        }
        self.gauge("weft_connections_open", "Connections that are open.");
        for worker in workers {
            let labels = [("worker", &*worker.name)];
            self.sample("weft_connections_open", &labels, worker.open_connections);
        }
        self.counter(
            "weft_responses_total",
            "Responses, those to requests that could not be understood included.",
        );
        for worker in workers {
            for (class, count) in &worker.responses {
                let labels = [("worker", &*worker.name), ("code", class)];
                self.sample("weft_responses_total", &labels, count);
            }
        }
        self.counter("weft_response_body_bytes_total", "Bytes of bodies that were sent.");
        for worker in workers {
            let labels = [("worker", &*worker.name)];
            self.sample("weft_response_body_bytes_total", &labels, worker.response_body_bytes);
        }
        self.counter("weft_errors_total", "Errors, by who has to act for them to go away.");
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
        self.counter("weft_requests_total", "Requests, by route and class of the status.");
        for route in routes {
            for (class, count) in &route.requests {
                let labels = [route.labels().as_slice(), &[("code", *class)]].concat();
                self.sample("weft_requests_total", &labels, count);
            }
        }
        self.gauge("weft_requests_in_flight", "Requests that wait for an answer.");
        for route in routes {
            self.sample("weft_requests_in_flight", &route.labels(), route.in_flight);
        }
        let name = "weft_request_duration_seconds";
        self.family(name, "histogram", "How long it took to decide on an answer.");
        for route in routes {
            self.histogram(name, &route.labels(), &route.durations);
        }
    }

    fn upstreams(&mut self, upstreams: &[Upstream]) {
        if upstreams.is_empty() {
            return;
        }
        self.gauge("weft_upstream_up", "Whether the upstream is as it should be.");
        for upstream in upstreams {
            let is_up = upstream.report.state == State::Up;
            self.sample("weft_upstream_up", &upstream.labels(), u8::from(is_up));
        }
        self.gauge("weft_upstream_state", "1 for the state that the upstream is in.");
        for upstream in upstreams {
            for state in State::ALL {
                let labels = [upstream.labels().as_slice(), &[("state", state.name())]].concat();
                let is_it = upstream.report.state == state;
                self.sample("weft_upstream_state", &labels, u8::from(is_it));
            }
        }
        type Count = (&'static str, &'static str, fn(&Upstream) -> u64);
        let counters: [Count; 3] = [
            (
                "weft_upstream_requests_total",
                "Requests that were sent to it, retries included.",
                |it| it.report.requests,
            ),
            ("weft_upstream_retries_total", "Those of them that had failed before.", |it| {
                it.report.retries
            }),
            ("weft_upstream_failures_total", "Failures that were its fault.", |it| {
                it.report.failures
            }),
        ];
        for (name, help, count) in counters {
            self.counter(name, help);
            for upstream in upstreams {
                self.sample(name, &upstream.labels(), count(upstream));
            }
        }
        self.gauge("weft_upstream_connections", "Connections to it.");
        for upstream in upstreams {
            let report = &upstream.report;
            for (state, count) in
                [("in_use", report.connections_in_use), ("idle", report.connections_idle)]
            {
                let labels = [upstream.labels().as_slice(), &[("state", state)]].concat();
                self.sample("weft_upstream_connections", &labels, count);
            }
        }
        self.gauge("weft_upstream_queue_length", "Requests that wait for a connection.");
        for upstream in upstreams {
            self.sample("weft_upstream_queue_length", &upstream.labels(), upstream.report.queued);
        }
        let name = "weft_upstream_response_seconds";
        self.family(name, "histogram", "From a request to the head of its response.");
        for upstream in upstreams {
            self.histogram(name, &upstream.labels(), &upstream.report.durations);
        }
    }

    // -- the format

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

    fn histogram(&mut self, name: &str, labels: Labels<'_>, durations: &Durations) {
        let bounds = BOUNDS.iter().map(|bound| bound.as_secs_f64().to_string());
        let bounds = bounds.chain(["+Inf".to_owned()]);
        let mut count = 0;
        for (bound, in_bucket) in bounds.zip(durations.buckets) {
            // Each bucket counts those before it, too.
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
        writeln!(self.0, "{line}").expect("a string takes everything");
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

impl Upstream {
    fn labels(&self) -> [(&str, &str); 3] {
        let Upstream { route, report } = self;
        [("host", &route.host), ("route", &route.prefix), ("upstream", &report.url)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Histogram;
    use std::time::Duration;

    #[test]
    fn samples_as_they_stand() {
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
    fn buckets_count_those_before_them() {
        let (histogram, mut durations) = (Histogram::default(), Durations::default());
        for millis in [1, 1, 2_000, 20_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        durations.add(&histogram);
        let mut page = Page(String::new());
        page.histogram("a", &[("b", "c")], &durations);
        for (line, is_there) in [
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
            assert_eq!(page.0.contains(line), is_there, "{line} in {}", page.0);
        }
    }
}
