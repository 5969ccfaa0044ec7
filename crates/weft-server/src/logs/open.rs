//! Opens the logs of a plan: one sink for each distinct output.

use std::collections::HashMap;
use std::io::{self, stderr, stdout};
use std::sync::Arc;
use std::time::Duration;

use log::LevelFilter;
use weft::log::{LogFormat, LogPrivacy};

use super::access::{AccessLog, RouteLogs};
use super::daemon::DaemonLog;
use super::error::{self, LineStyle};
use super::file::LogFile;
use super::message::MessageHeader;
use super::output::Output;
use super::rotation::Rotation;
use super::route::RouteLogPlan;
use super::sink::{LineSender, SharedWriter, Sink, Writer};
use super::stream::StreamLog;
use super::target::Target;
use crate::base::log_target::LogTarget;
use crate::base::request_notes::{AccessLogs, NotedRoute};
use crate::base::sys::{AsFd, FileId, OwnedFd, host_name};
use crate::options::AccessLogSettings;
use crate::sections::log::{ErrorFormat, Facility, LogSettings};
use crate::sections::tracing::{Tracer, TracingSettings};

/// The logs of a plan.
pub(crate) struct LogPlan<'a> {
    pub(crate) log: &'a LogSettings,
    /// Access logs of routes.
    pub(crate) of_routes: Vec<&'a AccessLogSettings>,
    /// Destinations of the logs of streams.
    pub(crate) of_streams: Vec<&'a LogTarget>,
    /// Export of spans.
    pub(crate) tracing: Option<&'a TracingSettings>,
}

/// The open logs of a plan.
#[derive(Default)]
pub(crate) struct OpenLogs {
    /// Sinks by the outputs that they were opened for. Several outputs may be the same file.
    sinks: HashMap<Source, Arc<Sink>>,
    /// The sink of the log of all requests without another one.
    access: Option<Arc<Sink>>,
    /// Format of the lines of logs without another one.
    format: Option<LogFormat>,
    error: Option<ErrorLog>,
    /// Logs of streams by their destinations.
    streams: HashMap<LogTarget, StreamLog>,
    has_route_logs: bool,
    /// Export of the spans of requests.
    tracer: Option<Arc<Tracer>>,
    /// Threads that write the files of a device. A slow device thus delays its own files only.
    of_devices: HashMap<u64, Arc<SharedWriter>>,
}

/// An output, with the name of its log for messages.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Source {
    name: &'static str,
    to: LogTarget,
    settings: OutputSettings,
}

/// Settings that all outputs have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
struct OutputSettings {
    rotation: Rotation,
    facility: Facility,
    tag: String,
}

struct ErrorLog {
    sink: Arc<Sink>,
    style: LineStyle,
    level: LevelFilter,
    privacy: LogPrivacy,
}

const ACCESS: &str = "access log";
const ERROR: &str = "error log";

impl OpenLogs {
    /// Opens the logs of a plan. Outputs that `former` has, too, are kept.
    pub(crate) fn open(plan: &LogPlan<'_>, former: Option<&OpenLogs>) -> Result<OpenLogs, String> {
        let config = plan.log;
        let mut opening = Opening::new(config, former);
        let error = ErrorLog {
            sink: opening.sink(ERROR, &config.error.value)?,
            style: match (&config.error.value, config.error_format) {
                (LogTarget::Daemon(_), _) => LineStyle::Daemon,
                (_, ErrorFormat::Json) => LineStyle::Json,
                (LogTarget::File(_), ErrorFormat::Text) => LineStyle::Text,
                (LogTarget::None | LogTarget::Stdout | LogTarget::Stderr, ErrorFormat::Text) => {
                    LineStyle::of_stderr()
                }
            },
            level: config.level,
            privacy: config.privacy.clone(),
        };
        let access = match config.has_access() {
            true => Some(opening.sink(ACCESS, &config.access.value)?),
            false => None,
        };
        let format = Some(config.format.format.clone().with_privacy(config.privacy.clone()));
        for to in plan.of_routes.iter().filter_map(|log| log.to.as_ref()) {
            opening.sink(ACCESS, to)?;
        }
        let mut streams = HashMap::new();
        for to in &plan.of_streams {
            if !streams.contains_key(*to) {
                let sender = Arc::new(opening.sink(ACCESS, to)?.line_sender());
                streams
                    .insert((*to).clone(), StreamLog::new(sender, config.privacy.mask_addresses));
            }
        }
        let has_route_logs = !plan.of_routes.is_empty();
        let tracer = open_tracer(plan.tracing, former)?;
        let Opening { sinks, of_devices, .. } = opening;
        let error = Some(error);
        Ok(OpenLogs { sinks, access, format, error, streams, has_route_logs, tracer, of_devices })
    }

    /// Returns true if there are records of requests, for logs or for spans.
    pub(super) fn needs_records(&self) -> bool {
        self.access.is_some() || self.has_route_logs || self.tracer.is_some()
    }

    /// The export of spans.
    pub(crate) fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.tracer.as_ref()
    }

    /// Parts that the logs and the spans withhold.
    pub(super) fn privacy(&self) -> Option<&LogPrivacy> {
        self.error.as_ref().map(|error| &error.privacy)
    }

    /// Returns the log of a stream with this destination.
    pub(crate) fn stream(&self, to: &LogTarget) -> Option<&StreamLog> {
        self.streams.get(to)
    }

    /// Has the macros of the crate `log` write to the error log.
    pub(super) fn install_error_log(&self) {
        if let Some(ErrorLog { sink, style, level, privacy }) = &self.error {
            error::install(sink.line_sender(), *style, *level, privacy.clone());
        }
    }

    /// Returns the writers of distinct sinks. The writer of the error log is the last.
    pub(super) fn writers(&self) -> Vec<Arc<Writer>> {
        let mut writers = Vec::<Arc<Writer>>::new();
        let error = self.error.as_ref().map(|error| error.sink.writer());
        for writer in self.sinks.values().map(|sink| sink.writer()) {
            let is_known = writers.iter().chain(error).any(|known| Arc::ptr_eq(known, writer));
            if !is_known {
                writers.push(writer.clone());
            }
        }
        writers.extend(error.cloned());
        writers
    }

    /// Creates the access logs of a worker.
    pub(crate) fn for_worker(&self) -> WorkerAccessLogs<'_> {
        WorkerAccessLogs { logs: self, senders: HashMap::new() }
    }
}

/// Starts the export of spans, or keeps the export of `former` if its settings are the same.
fn open_tracer(
    config: Option<&TracingSettings>,
    former: Option<&OpenLogs>,
) -> Result<Option<Arc<Tracer>>, String> {
    let Some(config) = config else { return Ok(None) };
    match former.and_then(|former| former.tracer.as_ref()) {
        Some(known) if known.config == *config => Ok(Some(known.clone())),
        _ => Ok(Tracer::start(config)?.map(Arc::new)),
    }
}

/// Creates the access logs of a worker. Logs with the same output share a buffer.
pub(crate) struct WorkerAccessLogs<'a> {
    logs: &'a OpenLogs,
    senders: HashMap<*const Sink, Arc<LineSender>>,
}

impl WorkerAccessLogs<'_> {
    /// Creates the log of all requests without another one.
    pub(super) fn default_log(&mut self) -> Option<AccessLog> {
        let OpenLogs { access, format, .. } = self.logs;
        Some(AccessLog::new(self.sender(access.as_ref()?), format.clone()?))
    }

    /// Creates the logs of a route.
    pub(crate) fn route(&mut self, plan: &RouteLogPlan) -> Arc<NotedRoute> {
        let own = plan.own.as_ref().map(|own| {
            let logs = own.iter().filter_map(|config| self.access_log(config));
            Box::new(RouteLogs(logs.collect())) as Box<dyn AccessLogs>
        });
        let (name, response_fields) = (plan.name.clone(), plan.response_fields.clone());
        let (has_groups, maps) = (plan.has_groups, plan.maps.clone());
        Arc::new(NotedRoute { name, response_fields, has_groups, maps, logs: own })
    }

    /// Creates a log of a route; `None` if it has no output.
    fn access_log(&mut self, config: &AccessLogSettings) -> Option<AccessLog> {
        let sink = match &config.to {
            None => self.logs.access.as_ref()?,
            Some(to) => {
                let mut sinks = self.logs.sinks.iter();
                sinks.find(|(source, _)| source.name == ACCESS && source.to == *to)?.1
            }
        };
        let format = config.format.as_ref().map(|format| &format.format);
        let default = self.logs.format.as_ref()?;
        let privacy = default.privacy().cloned().unwrap_or_default();
        let format = format.unwrap_or(default).clone().with_privacy(privacy);
        Some(AccessLog::new(self.sender(sink), format).with_conditions(config))
    }

    fn sender(&mut self, sink: &Arc<Sink>) -> Arc<LineSender> {
        let sender = self.senders.entry(Arc::as_ptr(sink));
        sender.or_insert_with(|| Arc::new(sink.line_sender())).clone()
    }
}

/// Sinks while they are opened.
struct Opening<'a> {
    settings: OutputSettings,
    former: Option<&'a OpenLogs>,
    sinks: HashMap<Source, Arc<Sink>>,
    /// The files that were opened.
    files: Vec<(FileId, Arc<Sink>)>,
    of_devices: HashMap<u64, Arc<SharedWriter>>,
}

impl<'a> Opening<'a> {
    fn new(config: &LogSettings, former: Option<&'a OpenLogs>) -> Opening<'a> {
        let rotation = Rotation {
            max_bytes: if config.max_bytes == 0 { u64::MAX } else { config.max_bytes },
            max_files: config.max_files,
            every: config.rotate_every.filter(|every| *every != Duration::MAX),
            max_age: config.max_age,
            compress: config.compress,
        };
        let settings =
            OutputSettings { rotation, facility: config.facility, tag: config.tag.clone() };
        let of_devices = former.map(|former| former.of_devices.clone()).unwrap_or_default();
        Opening { settings, former, sinks: HashMap::new(), files: Vec::new(), of_devices }
    }

    /// Returns the sink of an output. It is opened if neither this plan nor the former one has it.
    fn sink(&mut self, name: &'static str, to: &LogTarget) -> Result<Arc<Sink>, String> {
        let source = Source { name, to: to.clone(), settings: self.settings.clone() };
        let known = self.sinks.get(&source).or_else(|| self.former?.sinks.get(&source));
        let sink = match known {
            Some(sink) => sink.clone(),
            None => self.open(&source)?,
        };
        self.sinks.insert(source, sink.clone());
        Ok(sink)
    }

    fn open(&mut self, source: &Source) -> Result<Arc<Sink>, String> {
        let name = source.name;
        let target = source.open()?;
        let (id, device) = match &target {
            Target::File(file) => (file.id(), file.device()),
            Target::Daemon(_) => (None, None),
        };
        // One writer for both, so that their lines do not interleave.
        if let Some((_, sink)) = self.files.iter().find(|(known, _)| Some(*known) == id) {
            return Ok(sink.clone());
        }
        let report: fn(&str) = match name {
            ERROR => super::print_error,
            _ => |problem| log::error!("{problem}"),
        };
        let output = Output::new(name, target, report);
        let sink = match device {
            Some(device) => self.writer_of(device).map(|writer| writer.add(name, output)),
            None => Sink::start(name, output),
        };
        let sink =
            sink.map_err(|error| format!("cannot start the thread of the {name}: {error}"))?;
        self.files.extend(id.map(|id| (id, sink.clone())));
        Ok(sink)
    }

    /// Returns the thread that writes the files of a device.
    fn writer_of(&mut self, device: u64) -> io::Result<Arc<SharedWriter>> {
        if let Some(writer) = self.of_devices.get(&device) {
            return Ok(writer.clone());
        }
        let writer = Arc::new(SharedWriter::start("logs")?);
        self.of_devices.insert(device, writer.clone());
        Ok(writer)
    }
}

impl Source {
    /// Opens the output. The connection to a daemon is made for the first line.
    fn open(&self) -> Result<Target, String> {
        let Source { name, to, settings } = self;
        // Not Rust's own stream types, which buffer a partial line after a failed write.
        let stream = |owned: io::Result<OwnedFd>| owned.map(|fd| LogFile::stream(fd.into()));
        let (opened, description) = match to {
            LogTarget::Daemon(daemon) => {
                let log = DaemonLog::new(daemon.clone(), settings.header(name));
                return Ok(Target::Daemon(Box::new(log)));
            }
            LogTarget::File(path) => {
                (LogFile::open(path, settings.rotation), path.display().to_string())
            }
            LogTarget::Stdout => {
                (stream(stdout().as_fd().try_clone_to_owned()), "on stdout".to_owned())
            }
            LogTarget::Stderr | LogTarget::None => {
                (stream(stderr().as_fd().try_clone_to_owned()), "on stderr".to_owned())
            }
        };
        let opened = opened.map(Target::File);
        opened.map_err(|error| format!("cannot open the {name} {description}: {error}"))
    }
}

impl OutputSettings {
    fn header(&self, name: &'static str) -> MessageHeader {
        let host = host_name();
        let is_valid = !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic());
        MessageHeader {
            facility: self.facility,
            tag: self.tag.clone(),
            host: if is_valid { host } else { "-".to_owned() },
            pid: std::process::id(),
            kind: if name == ERROR { "error" } else { "access" },
        }
    }
}
