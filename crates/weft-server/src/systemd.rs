//! What a service manager gives and is told: `sd_listen_fds(3)` and `sd_notify(3)`.

use std::os::fd::OwnedFd;

use listenfd::ListenFd;
use sd_notify::NotifyState;
use weft::Listener;

use crate::sockets::{Open, Place, Protocol, Source};

/// The sockets that the service manager made. Those that it calls `tls` or `https`
/// (`FileDescriptorName=`) are for TLS, those that it calls `status` for the status endpoint.
///
/// To be called once, while there is one thread: it changes the environment, so that no child
/// takes the sockets for its own.
pub(crate) fn sockets() -> Result<Vec<Open>, String> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut descriptors = ListenFd::from_env();
    let mut given = Vec::new();
    for index in 0..descriptors.len() {
        let name = names.next().unwrap_or_default();
        let wrong = |reason: &dyn std::fmt::Display| {
            format!("cannot listen on the socket `{name}` of the service manager: {reason}")
        };
        let socket: OwnedFd = match descriptors.take_tcp_listener(index) {
            Ok(Some(socket)) => socket.into(),
            Ok(None) => continue,
            Err(_) => match descriptors.take_unix_listener(index) {
                Ok(Some(socket)) => socket.into(),
                Ok(None) => continue,
                Err(error) => return Err(wrong(&error)),
            },
        };
        let listener = Listener::inherited(socket).map_err(|error| wrong(&error))?;
        let protocol = match name {
            "tls" | "https" => Protocol::Https,
            "status" => Protocol::Status,
            _ => Protocol::Http,
        };
        let place = Place { source: Source::Manager, protocol };
        given.push(Open { place, listener });
    }
    Ok(given)
}

/// Says that the server serves, and which process it is: one may have taken over.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready, NotifyState::MainPid(std::process::id())]);
}

/// Says that the configuration is being read.
pub(crate) fn reloading() {
    let now = NotifyState::monotonic_usec_now().ok();
    let states: Vec<_> = [Some(NotifyState::Reloading), now].into_iter().flatten().collect();
    notify(&states);
}

/// Says that no requests are taken any more.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    // Without a service manager nobody is told; one that cannot be told has its own clock.
    let _ = sd_notify::notify(false, states);
}
