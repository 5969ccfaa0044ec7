//! The service manager's socket activation (`sd_listen_fds(3)`) and notifications (`sd_notify(3)`).

use listenfd::ListenFd;
use sd_notify::NotifyState;
use weft::net::{Http3Descriptor, Listener};

use crate::base::sys::OwnedFd;
use crate::sockets::handover::InheritedSockets;
use crate::sockets::{BoundSocket, ListenSpec, OpenSocket, Protocol, SocketSource};

/// Returns the sockets that the service manager created. Sockets with the name `tls` or `https`
/// (`FileDescriptorName=`) use TLS. Sockets with the name `status` are for the status endpoint. UDP
/// sockets are for HTTP/3, beside a socket with TLS for the same address.
///
/// Must be called once, while there is only one thread: it removes the variables from the
/// environment, so that child processes do not use the sockets.
pub(crate) fn sockets() -> Result<InheritedSockets, String> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut descriptors = ListenFd::from_env();
    let mut inherited = InheritedSockets::default();
    for index in 0..descriptors.len() {
        let name = names.next().unwrap_or_default();
        let problem = |reason: &dyn std::fmt::Display| {
            format!("cannot listen on the socket `{name}` of the service manager: {reason}")
        };
        if let Ok(Some(socket)) = descriptors.take_udp_socket(index) {
            let socket = Http3Descriptor::socket(socket).map_err(|error| problem(&error))?;
            inherited.http3.push(socket);
            continue;
        }
        let socket: OwnedFd = match descriptors.take_tcp_listener(index) {
            Ok(Some(socket)) => socket.into(),
            Ok(None) => continue,
            Err(_) => match descriptors.take_unix_listener(index) {
                Ok(Some(socket)) => socket.into(),
                Ok(None) => continue,
                Err(error) => return Err(problem(&error)),
            },
        };
        let listener = Listener::inherited(socket).map_err(|error| problem(&error))?;
        let protocol = match name {
            "tls" | "https" => Protocol::Https,
            "status" => Protocol::Status,
            _ => Protocol::Http,
        };
        let spec = ListenSpec { source: SocketSource::ServiceManager, protocol };
        let socket = BoundSocket::Listener(listener);
        inherited.sockets.push(OpenSocket { spec, socket });
    }
    Ok(inherited)
}

/// Reports that the server serves, and its PID, which changes at an upgrade.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready, NotifyState::MainPid(std::process::id())]);
}

/// Reports that a reload has begun.
pub(crate) fn reloading() {
    let now = NotifyState::monotonic_usec_now().ok();
    let states: Vec<_> = [Some(NotifyState::Reloading), now].into_iter().flatten().collect();
    notify(&states);
}

/// Reports that a shutdown has begun.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    // Without a service manager this does nothing. An error is ignored, because the service manager
    // has its own timeouts.
    let _ = sd_notify::notify(false, states);
}
