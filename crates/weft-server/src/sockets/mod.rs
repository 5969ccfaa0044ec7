//! Listening sockets: bound for the plan, or inherited from a predecessor or service manager.

pub(crate) mod defer_accept; // connections are accepted with their first bytes
pub(crate) mod handover; // passes the sockets to the next process at an upgrade
pub(crate) mod systemd; // socket activation and sd_notify

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use weft::net::{Address, Http3Descriptor, Listener, LocalAddress};
use weft::server::ServerHandle;
use weft::tls::Tls;
use weft::{ErrorKind, Settings};

use crate::base::listen_end::{Ipv4Ports, ListenEnd, TcpEnd};
use crate::base::sys::OwnedFd;
use crate::base::unix_address::UnixAddress;
use crate::sections::addresses::Addresses;
use crate::sections::status::status_limits;
use crate::sections::streams::{StreamConfig, udp_address};

/// Identifies a listening socket across reloads and upgrades. One `ListenSpec` may have several
/// sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenSpec {
    pub(crate) source: SocketSource,
    pub(crate) protocol: Protocol,
}

/// Protocol of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    /// HTTP over TLS.
    Https,
    /// The status endpoint, over HTTP.
    Status,
    /// TCP without HTTP.
    Stream,
    /// UDP.
    Datagram,
}

/// A socket that is bound to an address.
pub(crate) enum BoundSocket {
    Listener(Listener),
    Datagram(UdpSocket),
}

impl BoundSocket {
    /// Takes over a socket of another process.
    pub(crate) fn inherited(socket: OwnedFd, protocol: Protocol) -> weft::Result<BoundSocket> {
        Ok(match protocol {
            Protocol::Datagram => BoundSocket::Datagram(socket.into()),
            _ => BoundSocket::Listener(Listener::inherited(socket)?),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SocketSource {
    /// An address of the configuration, as written there.
    Config(String),
    /// A socket created by the service manager.
    ServiceManager,
}

/// A listening socket that is not served yet.
pub(crate) struct OpenSocket {
    pub(crate) spec: ListenSpec,
    pub(crate) socket: BoundSocket,
}

/// A listening socket that is being served.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServedSocket {
    pub(crate) spec: ListenSpec,
    /// Bound address; for UDP with the address of the socket.
    pub(crate) local_address: LocalAddress,
}

/// Addresses of a plan, and the limits of their listeners.
pub(crate) struct ListenPlan<'a> {
    /// Without TLS.
    pub(crate) plain: &'a Addresses,
    pub(crate) tls: Option<&'a Addresses>,
    pub(crate) status: &'a Addresses,
    pub(crate) streams: &'a [StreamConfig],
    pub(crate) limits: &'a Settings,
}

/// Sockets to open and to close for a new plan.
pub(crate) struct SocketChanges {
    pub(crate) opened: Vec<OpenSocket>,
    pub(crate) closed: Vec<ServedSocket>,
}

impl Protocol {
    /// Returns true if one server serves both protocols.
    fn is_served_with(self, other: Protocol) -> bool {
        let is_main = |protocol| matches!(protocol, Protocol::Http | Protocol::Https);
        self == other || is_main(self) && is_main(other)
    }
}

impl ListenSpec {
    /// Returns true if this spec can reuse a socket of `other`: the same address may change between
    /// HTTP and HTTPS.
    fn can_reuse_socket_of(&self, other: &ListenSpec) -> bool {
        self.source == other.source && self.protocol.is_served_with(other.protocol)
    }

    fn is_from_service_manager(&self) -> bool {
        self.source == SocketSource::ServiceManager
    }
}

impl ListenPlan<'_> {
    /// Sets the modes and owners of the files of Unix sockets.
    fn apply_unix_settings(&self) -> weft::Result<()> {
        let tls = self.tls.into_iter().flat_map(Addresses::texts);
        let all = self.plain.texts().chain(tls).chain(self.status.texts());
        for text in all {
            let Some(Ok(address)) = UnixAddress::parse(text) else { continue };
            if address.has_settings() {
                address.apply().map_err(|error| {
                    let reason = format!("cannot set the mode and the owner of {text}");
                    weft::Error::new(ErrorKind::Listen, reason).with_source(error)
                })?;
            }
        }
        Ok(())
    }

    /// Returns the ports on which an address of IPv4 is listened on.
    pub(crate) fn ipv4_ports(&self) -> Ipv4Ports {
        let tls = self.tls.into_iter().flat_map(Addresses::texts);
        let all = self.plain.texts().chain(tls).chain(self.status.texts());
        let streams = self.streams.iter().flat_map(|stream| &stream.listen);
        Ipv4Ports::new(all.chain(streams).map(String::as_str))
    }
}

impl OpenSocket {
    /// Returns the address of a listener.
    fn local_address(&self) -> Option<LocalAddress> {
        match &self.socket {
            BoundSocket::Listener(listener) => Some(listener.local_address().clone()),
            BoundSocket::Datagram(_) => None,
        }
    }

    /// Binds the UDP sockets of an HTTPS socket, or takes them from `inherited`, while the process
    /// may have privileges. If that fails, the server tries it again when it starts, and reports the
    /// reason.
    pub(crate) fn bind_http3(&mut self, workers: usize, inherited: &mut Vec<Http3Descriptor>) {
        if let (Protocol::Https, BoundSocket::Listener(listener)) =
            (self.spec.protocol, &mut self.socket)
        {
            listener.inherit_http3(inherited);
            let _ = listener.bind_http3(workers);
        }
    }

    /// Adds TLS to an HTTPS socket. Returns the description of the socket, and its listener.
    pub(crate) fn with_tls(self, tls: Option<&Tls>) -> Result<(ServedSocket, BoundSocket), String> {
        let OpenSocket { spec, socket } = self;
        let listener = match socket {
            BoundSocket::Listener(listener) => listener,
            BoundSocket::Datagram(socket) => {
                let address = socket.local_addr().map_err(|error| error.to_string())?;
                let served = ServedSocket { spec, local_address: LocalAddress::Tcp(address) };
                return Ok((served, BoundSocket::Datagram(socket)));
            }
        };
        let listener = match (spec.protocol, tls) {
            (Protocol::Http | Protocol::Status | Protocol::Stream | Protocol::Datagram, _) => {
                listener
            }
            (Protocol::Https, Some(tls)) => listener.with_tls(tls),
            (Protocol::Https, None) => {
                return Err(format!(
                    "cannot serve HTTPS on {}: no certificate is configured in [tls]",
                    listener.local_address()
                ));
            }
        };
        let local_address = listener.local_address().clone();
        Ok((ServedSocket { spec, local_address }, BoundSocket::Listener(listener)))
    }
}

/// Returns the sockets of a plan: inherited sockets if they match, otherwise new ones. Inherited
/// sockets of a predecessor that the plan does not use are closed.
pub(crate) fn open(
    plan: &ListenPlan<'_>,
    inherited: Vec<OpenSocket>,
) -> weft::Result<Vec<OpenSocket>> {
    let is_kept = |open: &OpenSocket| open.spec.is_from_service_manager();
    let (mut sockets, mut inherited): (Vec<_>, Vec<_>) = inherited.into_iter().partition(is_kept);
    let existing: Vec<_> =
        sockets.iter().map(|open| (open.spec.clone(), open.local_address())).collect();
    for spec in required_specs(plan, &existing) {
        let is_same = |open: &mut OpenSocket| open.spec == spec;
        let mut matching: Vec<OpenSocket> = inherited.extract_if(.., is_same).collect();
        if matching.is_empty() {
            let is_reusable = |open: &mut OpenSocket| spec.can_reuse_socket_of(&open.spec);
            matching = inherited.extract_if(.., is_reusable).collect();
        }
        if matching.is_empty() {
            matching = bind(&spec, plan)?;
        }
        for OpenSocket { socket, .. } in matching {
            let socket = match socket {
                // The file of an inherited Unix socket was created by a predecessor. This process
                // removes it at exit, but only once the handover is complete.
                BoundSocket::Listener(it) => BoundSocket::Listener(it.with_socket_file()?),
                datagram => datagram,
            };
            sockets.push(OpenSocket { spec: spec.clone(), socket });
        }
    }
    plan.apply_unix_settings()?;
    Ok(sockets)
}

/// Returns the sockets to open and to close for a new plan, with or without the status endpoint.
/// Sockets that both plans use are left unchanged.
pub(crate) fn changes(
    plan: &ListenPlan<'_>,
    served: &[ServedSocket],
    handle: &ServerHandle,
    has_status: bool,
) -> weft::Result<SocketChanges> {
    let existing: Vec<_> = served
        .iter()
        .map(|socket| (socket.spec.clone(), Some(socket.local_address.clone())))
        .collect();
    let mut required = required_specs(plan, &existing);
    required.retain(|spec| has_status || spec.protocol != Protocol::Status);
    let mut opened = Vec::new();
    for spec in &required {
        if served.iter().any(|socket| socket.spec == *spec) {
            continue;
        }
        // The same address may change between HTTP and HTTPS.
        let same = served.iter().filter(|socket| spec.can_reuse_socket_of(&socket.spec));
        let addresses = same.map(|socket| &socket.local_address);
        let reusable: Vec<&LocalAddress> =
            addresses.filter(|address| address.address().is_some()).collect();
        if reusable.is_empty() {
            opened.extend(bind(spec, plan)?);
            continue;
        }
        for (address, socket) in handle.sockets()? {
            if reusable.contains(&&address) {
                let socket = BoundSocket::inherited(socket, spec.protocol)?;
                opened.push(OpenSocket { spec: spec.clone(), socket });
            }
        }
    }
    let is_closed = |socket: &&ServedSocket| {
        !socket.spec.is_from_service_manager() && !required.contains(&socket.spec)
    };
    let closed = served.iter().filter(is_closed).cloned().collect();
    plan.apply_unix_settings()?;
    Ok(SocketChanges { opened, closed })
}

/// Returns the specs of a plan. Default addresses are omitted if the service manager has passed
/// sockets other than for the status endpoint. Addresses that are contained in another one of the
/// same protocol have its socket.
fn required_specs(
    plan: &ListenPlan<'_>,
    existing: &[(ListenSpec, Option<LocalAddress>)],
) -> Vec<ListenSpec> {
    let of_service_manager = existing.iter().filter(|(spec, _)| spec.is_from_service_manager());
    let is_socket_activated =
        of_service_manager.clone().any(|(spec, _)| spec.protocol != Protocol::Status);
    let of_service_manager = of_service_manager
        .filter(|(spec, _)| spec.protocol.is_served_with(Protocol::Http))
        .filter_map(|(_, address)| address.as_ref().map(end_of_socket));
    let passed: Vec<ListenEnd> = of_service_manager.collect();
    let ports = plan.ipv4_ports();
    let is_passed = |text: &str| {
        let has = |end: &ListenEnd| passed.iter().any(|passed| passed.covers(end));
        ports.ends(text).iter().all(has)
    };
    let plain = (plan.plain, Protocol::Http);
    let secure = plan.tls.map(|addresses| (addresses, Protocol::Https));
    let status = (plan.status, Protocol::Status);
    let spec = |text: &String, protocol| ListenSpec {
        source: SocketSource::Config(UnixAddress::without_settings(text)),
        protocol,
    };
    let mut specs = Vec::new();
    for (addresses, protocol) in [Some(plain), secure, Some(status)].into_iter().flatten() {
        if !(addresses.are_defaults && is_socket_activated) {
            specs.extend(addresses.list.iter().map(|address| spec(&address.value, protocol)));
        }
        let of_hosts = addresses.of_hosts.iter().filter(|address| !is_passed(&address.value));
        specs.extend(of_hosts.map(|address| spec(&address.value, protocol)));
    }
    let streams = plan.streams.iter().flat_map(|stream| &stream.listen);
    specs.extend(streams.map(|text| match udp_address(text) {
        Some(_) => spec(text, Protocol::Datagram),
        None => spec(text, Protocol::Stream),
    }));
    without_contained(specs, &ports)
}

/// Removes specs whose addresses are contained in those of another one with the same protocol.
fn without_contained(specs: Vec<ListenSpec>, ports: &Ipv4Ports) -> Vec<ListenSpec> {
    let ends = |spec: &ListenSpec| match (&spec.source, spec.protocol) {
        (SocketSource::Config(text), Protocol::Http | Protocol::Https | Protocol::Status) => {
            ports.ends(text)
        }
        _ => Vec::new(),
    };
    let ends: Vec<Vec<ListenEnd>> = specs.iter().map(ends).collect();
    let contains = |one: usize, other: usize| {
        let has = |end: &ListenEnd| ends[one].iter().any(|it| it.covers(end));
        !ends[other].is_empty() && ends[other].iter().all(has)
    };
    let is_contained = |index: usize| {
        (0..specs.len()).any(|other| {
            other != index
                && specs[other].protocol == specs[index].protocol
                && contains(other, index)
                // Of equal addresses, the first stays.
                && (other < index || !contains(index, other))
        })
    };
    let kept: Vec<bool> = (0..specs.len()).map(|index| !is_contained(index)).collect();
    specs.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(spec, _)| spec).collect()
}

fn end_of_socket(address: &LocalAddress) -> ListenEnd {
    match (address.address(), address.path()) {
        (Some(address), _) if address.ip().is_unspecified() => ListenEnd::Tcp(match address {
            SocketAddr::V4(_) => TcpEnd::AnyIpv4(address.port()),
            SocketAddr::V6(_) => TcpEnd::Any(address.port()),
        }),
        (Some(address), _) => ListenEnd::Tcp(TcpEnd::Address(address)),
        (None, path) => ListenEnd::Unix(path.map(Into::into).unwrap_or_default()),
    }
}

fn bind(spec: &ListenSpec, plan: &ListenPlan<'_>) -> weft::Result<Vec<OpenSocket>> {
    let limits = plan.limits;
    let SocketSource::Config(text) = &spec.source else { return Ok(Vec::new()) };
    if let Some(text) = udp_address(text) {
        let bound = bind_udp(&text.parse()?).map_err(|error| {
            weft::Error::new(ErrorKind::Listen, format!("cannot bind udp://{text}"))
                .with_source(error)
        })?;
        return Ok(vec![OpenSocket { spec: spec.clone(), socket: BoundSocket::Datagram(bound) }]);
    }
    let address: Address = match *plan.ipv4_ports().ends(text) {
        [ListenEnd::Tcp(TcpEnd::AnyIpv6(port))] => Address::AnyIpv6(port),
        _ => text.parse()?,
    };
    let listeners = match spec.protocol {
        Protocol::Http | Protocol::Https => Listener::bind(&address, limits)?,
        Protocol::Status => Listener::bind(&address, &status_limits())?,
        Protocol::Stream | Protocol::Datagram => {
            let settings = Settings { reuse_port: false, ..limits.clone() };
            Listener::bind(&address, &settings)?
        }
    };
    if listeners.is_empty() {
        log::warn!("this machine has no IPv6, so that {text} is not listened on");
    }
    let listeners = listeners.into_iter();
    let open =
        |listener| OpenSocket { spec: spec.clone(), socket: BoundSocket::Listener(listener) };
    Ok(listeners.map(open).collect())
}

/// Binds a socket for UDP. That of all addresses is one of IPv6, if the system has it, which
/// receives datagrams over IPv4, too.
fn bind_udp(address: &Address) -> io::Result<UdpSocket> {
    let socket = match address {
        Address::Any(port) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, *port))
            .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, *port)))?,
        Address::AnyIpv6(port) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, *port))?,
        Address::Host(address) => UdpSocket::bind(address.as_str())?,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The form in which a process sends a spec to its successor. [`FromStr`] parses it.
impl fmt::Display for ListenSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Http => "http",
            Protocol::Https => "https",
            Protocol::Status => "status",
            Protocol::Stream => "stream",
            Protocol::Datagram => "datagram",
        };
        match &self.source {
            SocketSource::Config(text) => write!(f, "{protocol} {text}"),
            SocketSource::ServiceManager => write!(f, "{protocol}"),
        }
    }
}

impl FromStr for ListenSpec {
    type Err = ();

    fn from_str(text: &str) -> Result<ListenSpec, ()> {
        let (protocol, source) = match text.split_once(' ') {
            Some((protocol, text)) => (protocol, SocketSource::Config(text.to_owned())),
            None => (text, SocketSource::ServiceManager),
        };
        let protocol = match protocol {
            "http" => Protocol::Http,
            "https" => Protocol::Https,
            "status" => Protocol::Status,
            "stream" => Protocol::Stream,
            "datagram" => Protocol::Datagram,
            _ => return Err(()),
        };
        Ok(ListenSpec { source, protocol })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_addresses_are_omitted_with_socket_activation() {
        use crate::config::Config;
        use crate::config::Plan;
        use weft_config::Sources;
        let (none, tls) = ("", "[tls]\nself_signed = true\n");
        let status = "[status]\nlisten = \":9\"\n";
        let stream = "[streams.\":7 udp://:8\"]\nto = \"a:1\"\n";
        let tls_stream = "tls.self_signed = true\n[streams.\":7\"]\nto = \"a:1\"\ntls = true\n";
        let listening = format!("listen = \":80\"\n{tls_stream}");
        let tls_listening = format!("tls.listen = \":443\"\n{tls_stream}");
        let (listening, tls_listening) = (&*listening, &*tls_listening);
        for (text, given, expected) in [
            (none, None, "http 127.0.0.1:8080"),
            (none, Some(Protocol::Http), ""),
            (none, Some(Protocol::Status), "http 127.0.0.1:8080"),
            (tls, None, "https 127.0.0.1:8443"),
            (tls, Some(Protocol::Http), ""),
            (status, None, "http 127.0.0.1:8080, status :9"),
            (status, Some(Protocol::Https), "status :9"),
            (stream, Some(Protocol::Http), "stream :7, datagram udp://:8"),
            // The certificates belong to the stream.
            (tls_stream, None, "http 127.0.0.1:8080, stream :7"),
            (listening, None, "http :80, stream :7"),
            (tls_listening, None, "https :443, stream :7"),
        ] {
            let text = format!("{text}[hosts.\"*\"]\n\"/\" = \"<< /a/\"\n");
            let config = Config::parse(&Sources::of_text("f", text, std::path::Path::new("")));
            let plan = Plan::new(config).map_err(|problems| format!("{problems:?}")).unwrap();
            let passed = |protocol| ListenSpec { source: SocketSource::ServiceManager, protocol };
            let existing: Vec<_> = given.map(|it| (passed(it), None)).into_iter().collect();
            let specs = required_specs(&plan.listening(), &existing);
            let specs: Vec<String> = specs.iter().map(ListenSpec::to_string).collect();
            assert_eq!(specs.join(", "), expected, "{given:?}");
        }
    }

    #[test]
    fn listen_spec_round_trips() {
        use Protocol::{Datagram, Http, Https, Status, Stream};
        let plan = |text: &str| SocketSource::Config(text.to_owned());
        for (source, protocol, text) in [
            (plan(":80"), Http, "http :80"),
            (plan("unix:/a b"), Https, "https unix:/a b"),
            (SocketSource::ServiceManager, Https, "https"),
            (plan(":81"), Status, "status :81"),
            (SocketSource::ServiceManager, Status, "status"),
            (plan(":5432"), Stream, "stream :5432"),
            (plan("udp://:53"), Datagram, "datagram udp://:53"),
        ] {
            let spec = ListenSpec { source, protocol };
            assert_eq!(spec.to_string(), text);
            assert_eq!(text.parse(), Ok(spec));
        }
        assert_eq!("end".parse::<ListenSpec>(), Err(()));
    }
}
