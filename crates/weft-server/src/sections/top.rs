//! The keys before the first section.

use std::path::PathBuf;
use std::time::Duration;

use weft::header::HeaderName;
use weft::net::IpNetwork;
use weft_config::{
    Key, Located, ValueKind, quoted, quoted_list, quoted_path, quoted_time, show_size,
};
use weft_upstream::spool::BufferSpaceLimits;

use super::addresses::Addresses;
use super::limits::limit;
use crate::base::network_set::networks;

/// Advice about proxies that do not send the PROXY protocol.
pub(crate) const FORWARDING_PROXIES: &str =
    "those that send X-Forwarded-For belong in `trusted_proxies` at the top of the file";

/// Values of the keys before the first section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopConfig {
    pub(crate) listen: Addresses,
    /// `None`: one per CPU.
    pub(crate) workers: Option<usize>,
    /// The kernel passes connections on with their first bytes.
    pub(crate) defer_accept: bool,
    /// A route or certificate that cannot be opened is an error of the whole configuration.
    pub(crate) strict_start: bool,
    /// The configuration is reloaded when its files change.
    pub(crate) watch: bool,
    /// Time for which the server accepts connections after a stop was requested.
    pub(crate) shutdown_delay: Duration,
    /// Time for requests in flight to complete at a stop.
    pub(crate) drain_timeout: Duration,
    /// Time for requests in flight to complete after another process has taken over the sockets.
    pub(crate) handover_timeout: Duration,
    pub(crate) max_buffer_bytes: u64,
    pub(crate) max_buffer_bytes_per_client: u64,
    pub(crate) max_temp_bytes: u64,
    pub(crate) max_unread_bytes_per_client: u64,
    /// Proxies whose `client_ip_header` is trusted.
    pub(crate) trusted_proxies: Vec<IpNetwork>,
    pub(crate) client_ip_header: HeaderName,
    pub(crate) run_as: RunAs,
    pub(crate) umask: Option<u32>,
    pub(crate) pid_file: Option<Located<PathBuf>>,
}

/// User and group of the process after its sockets are bound. `None`: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunAs {
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
}

impl TopConfig {
    /// Returns the limits of the space for buffered bodies.
    pub(crate) fn buffer_space(&self) -> BufferSpaceLimits {
        BufferSpaceLimits {
            memory_bytes: self.max_buffer_bytes,
            memory_bytes_per_client: self.max_buffer_bytes_per_client,
            disk_bytes: self.max_temp_bytes,
            unread_bytes_per_client: self.max_unread_bytes_per_client,
        }
    }

    /// Returns the keys that have changed, and whose values a running process cannot apply. The
    /// pattern has no `..`, so that each new key must be assigned to one of its two halves.
    pub(crate) fn restart_only_changes(
        &self,
        former: &TopConfig,
    ) -> impl Iterator<Item = &'static str> + use<> {
        let TopConfig {
            // These apply at once.
            listen: _,
            defer_accept: _,
            strict_start: _,
            watch: _,
            shutdown_delay: _,
            drain_timeout: _,
            handover_timeout: _,
            max_buffer_bytes: _,
            max_buffer_bytes_per_client: _,
            max_temp_bytes: _,
            max_unread_bytes_per_client: _,
            trusted_proxies: _,
            client_ip_header: _,
            // These do not.
            workers,
            run_as: RunAs { user, group },
            umask,
            pid_file,
        } = self;
        let changed = [
            ("workers", *workers != former.workers),
            ("user", *user != former.run_as.user),
            ("group", *group != former.run_as.group),
            ("umask", *umask != former.umask),
            ("pid_file", *pid_file != former.pid_file),
        ];
        changed.into_iter().filter(|(_, is_changed)| *is_changed).map(|(name, _)| name)
    }
}

impl Default for TopConfig {
    fn default() -> TopConfig {
        let space = BufferSpaceLimits::default();
        TopConfig {
            listen: Addresses::default(),
            workers: None,
            defer_accept: crate::base::sys::FEATURES.defer_accept,
            strict_start: false,
            watch: false,
            shutdown_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(10),
            handover_timeout: Duration::from_secs(3_600),
            max_buffer_bytes: space.memory_bytes,
            max_buffer_bytes_per_client: space.memory_bytes_per_client,
            max_temp_bytes: space.disk_bytes,
            max_unread_bytes_per_client: space.unread_bytes_per_client,
            trusted_proxies: Vec::new(),
            client_ip_header: HeaderName::from_static("x-forwarded-for"),
            run_as: RunAs::default(),
            umask: None,
            pid_file: None,
        }
    }
}

pub(crate) static TOP: [Key<TopConfig>; 19] = [
    Key {
        name: "include",
        help: "further files, or patterns such as sites/*.toml",
        // The files are read before their keys.
        kind: ValueKind::Texts(|_, _| Ok(())),
        show: |_| String::new(),
        ..Key::FILE_ONLY
    },
    Key {
        name: "listen",
        flag: "listen",
        argument: "ADDR",
        help: "address to listen on: host:port, :port, [v6]:port or unix:PATH (127.0.0.1:8080, or \
               none with TLS)",
        kind: ValueKind::Texts(|top, given| {
            Addresses::parse(given).map(|listen| top.listen = listen)
        }),
        show: |top| top.listen.show(),
    },
    Key {
        name: "workers",
        flag: "workers",
        argument: "N",
        help: "number of worker threads, each with an event loop (one per CPU)",
        kind: ValueKind::Count(1..=1_024, |top, count| top.workers = Some(count as usize)),
        show: |top| top.workers.map_or_else(String::new, |count| count.to_string()),
    },
    limit!(
        defer_accept,
        "defer-accept",
        switch,
        "accept a connection when its first bytes have arrived, or after a second \
         (TCP_DEFER_ACCEPT)"
    ),
    limit!(
        strict_start,
        "strict-start",
        switch,
        "a start and a reload fail if a folder, a file or a certificate of any site cannot be opened; \
         by default only its routes get 503"
    ),
    limit!(watch, "watch", switch, "reload the configuration when one of its files changes"),
    Key {
        name: "shutdown_delay",
        flag: "shutdown-delay",
        argument: "TIME",
        help: "time for which a stop first keeps accepting connections, while `/ready` of the status \
               endpoint is 503",
        kind: ValueKind::Time(|top, time| top.shutdown_delay = time),
        show: |top| match top.shutdown_delay {
            Duration::ZERO => String::new(),
            delay => quoted_time(delay),
        },
    },
    Key {
        name: "drain_timeout",
        flag: "drain-timeout",
        argument: "TIME",
        help: "maximum time for requests in flight to complete at a stop (SIGTERM, SIGINT)",
        kind: ValueKind::Time(|top, time| top.drain_timeout = time),
        show: |top| quoted_time(top.drain_timeout),
    },
    Key {
        name: "handover_timeout",
        flag: "handover-timeout",
        argument: "TIME",
        help: "maximum time for requests in flight to complete after an upgrade (SIGUSR2)",
        kind: ValueKind::Time(|top, time| top.handover_timeout = time),
        show: |top| quoted_time(top.handover_timeout),
    },
    limit!(max_buffer_bytes, "max-buffer-bytes", size 0..=u64::MAX,
        "maximum memory of all buffered bodies together; more is stored in temporary files"),
    limit!(max_buffer_bytes_per_client, "max-buffer-bytes-per-client", size 0..=u64::MAX,
        "maximum memory of the buffered bodies of one client address, or /64 of IPv6; more is stored \
         in temporary files"),
    limit!(max_temp_bytes, "max-temp-bytes", size 0..=u64::MAX,
        "maximum size of all temporary files of buffered bodies together; one client may \
         have half; more is streamed"),
    limit!(max_unread_bytes_per_client, "max-unread-bytes-per-client", size 0..=u64::MAX,
        "maximum number of bytes of responses that are written to temporary files and not read by one \
         client address, or /64 of IPv6; each byte that it reads permits 8 more"),
    Key {
        name: "trusted_proxies",
        flag: "trusted-proxies",
        argument: "NETWORK",
        help: "proxies in front of the server that send the address of the client in \
               `client_ip_header`, for logs, rules, limits and applications",
        kind: ValueKind::Texts(|top, texts| {
            networks(texts).map(|proxies| top.trusted_proxies = proxies)
        }),
        show: |top| quoted_list(top.trusted_proxies.iter().map(ToString::to_string)),
    },
    Key {
        name: "client_ip_header",
        flag: "client-ip-header",
        argument: "NAME",
        help: "field in which all `trusted_proxies` send the address of the client: \
               X-Forwarded-For, Forwarded, or another with one address or a list",
        kind: ValueKind::Text(|top, text| {
            let name = text.value.parse().map_err(|_| {
                text.problem(format!("expected the name of a field, found {:?}", text.value))
            });
            name.map(|name| top.client_ip_header = name)
        }),
        show: |top| quoted(top.client_ip_header.as_str()),
    },
    Key {
        name: "user",
        flag: "user",
        argument: "NAME",
        help: "user to run as after the sockets are bound, with the groups of that user",
        kind: ValueKind::Text(|top, name| {
            top.run_as.user = Some(name.value);
            Ok(())
        }),
        show: |top| top.run_as.user.as_ref().map_or_else(String::new, |name| quoted(name)),
    },
    Key {
        name: "group",
        flag: "group",
        argument: "NAME",
        help: "group to run as (the primary group of the user)",
        kind: ValueKind::Text(|top, name| {
            top.run_as.group = Some(name.value);
            Ok(())
        }),
        show: |top| top.run_as.group.as_ref().map_or_else(String::new, |name| quoted(name)),
    },
    Key {
        name: "umask",
        flag: "umask",
        argument: "MASK",
        help: "umask for files that the server creates, in octal, such as 027",
        kind: ValueKind::Text(|top, mask| {
            let parsed = u32::from_str_radix(&mask.value, 8).ok().filter(|mask| *mask <= 0o777);
            let expected = "expected a mask of three octal digits such as 027";
            let invalid = || mask.problem(format!("{expected}, found {:?}", mask.value));
            top.umask = Some(parsed.ok_or_else(invalid)?);
            Ok(())
        }),
        show: |top| top.umask.map_or_else(String::new, |mask| quoted(&format!("{mask:03o}"))),
    },
    Key {
        name: "pid_file",
        flag: "pid-file",
        argument: "FILE",
        help: "file for the PID of the process",
        kind: ValueKind::Path(|top, path| top.pid_file = Some(path)),
        show: |top| quoted_path(top.pid_file.as_ref()),
    },
];
