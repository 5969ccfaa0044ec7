//! Addresses to listen on.

use std::collections::HashMap;

use weft::net::Address;
use weft_config::{ConfigResult, Located, Problem, quoted_texts};

use crate::base::listen_end::{Ipv4Ports, ListenEnd};
use crate::base::unix_address::UnixAddress;

/// Addresses to listen on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) list: Vec<Located<String>>,
    /// The configuration has no addresses. `list` has the default, if there is one.
    pub(crate) are_defaults: bool,
    /// Further addresses, which have only the hosts that are bound to them.
    pub(crate) of_hosts: Vec<Located<String>>,
}

impl Addresses {
    /// Checks the addresses of a key.
    pub(super) fn parse(list: Vec<Located<String>>) -> ConfigResult<Addresses> {
        for address in &list {
            check_address(&address.value).map_err(|message| address.problem(message))?;
        }
        Ok(Addresses::of_list(list))
    }

    pub(super) fn of_list(list: Vec<Located<String>>) -> Addresses {
        Addresses { list, ..Addresses::default() }
    }

    /// Adds the default if there are no addresses.
    pub(crate) fn or_default(mut self, default: Option<&str>) -> Addresses {
        self.are_defaults = self.list.is_empty();
        if self.are_defaults {
            self.list.extend(default.map(|text| Located::without_location(text.to_owned())));
        }
        self
    }

    /// Returns all addresses.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Located<String>> {
        self.list.iter().chain(&self.of_hosts)
    }

    /// Returns all addresses as texts.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &String> {
        self.all().map(|address| &address.value)
    }

    pub(super) fn show(&self) -> String {
        quoted_texts(&self.list)
    }
}

/// Checks an address to listen on. The error has the right spelling, if another is usual elsewhere.
pub(super) fn check_address(text: &str) -> Result<(), String> {
    if let Some(Err(message)) = UnixAddress::parse(text) {
        return Err(message);
    }
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let (address, parameters) = text.split_once(' ').unwrap_or((text, ""));
    let of_all = address.strip_prefix("*:").or(Some(address)).filter(|text| is_port(text));
    let hint = match (text.split_once("://"), of_all) {
        _ if text.starts_with("unix:") => None,
        (Some((_, host)), _) => {
            let host = host.trim_end_matches('/');
            Some(format!(
                "an address has no scheme: `{host}`; an address with TLS belongs in `listen` of \
                 [tls]"
            ))
        }
        (None, Some(port)) if parameters.is_empty() => {
            Some(format!("port {port} of all addresses is `:{port}`"))
        }
        (None, _) if !parameters.is_empty() => Some(
            "an address has no parameters; several addresses are a list, and an address with TLS \
             belongs in `listen` of [tls]"
                .to_owned(),
        ),
        _ => None,
    };
    match (text.parse::<Address>(), hint) {
        (_, Some(hint)) => Err(format!("`{text}` is no address to listen on; {hint}")),
        (Err(error), None) => Err(error.reason().to_owned()),
        (Ok(_), None) => Ok(()),
    }
}

/// Reports addresses that occur twice, and addresses of different groups of which one contains the
/// other. Port 0 is another port each time. One socket serves all addresses of a group, such as the
/// addresses of all hosts without TLS.
pub(crate) fn check_listening(
    groups: &[Vec<&Located<String>>],
    are_shared: bool,
    problems: &mut Vec<Problem>,
) {
    let texts = groups.iter().flatten().map(|address| &*address.value);
    let ports = Ipv4Ports::new(texts);
    let mut known = HashMap::new();
    let mut ends = Vec::<(ListenEnd, usize, &Located<String>)>::new();
    for (group, address) in
        groups.iter().enumerate().flat_map(|(group, list)| list.iter().map(move |it| (group, *it)))
    {
        if address.value.ends_with(":0") && !address.value.starts_with("unix:") {
            continue;
        }
        let all = address.value.strip_prefix(':').map(|port| format!("[::]:{port}"));
        let normal = all.unwrap_or_else(|| address.value.clone());
        if let Some(first) = known.insert(normal, &address.location) {
            let first = first.relative_to(&address.location);
            let message = format!("the address `{}` is given twice{first}", address.value);
            problems.push(address.problem(message));
            continue;
        }
        for end in ports.ends(&address.value) {
            // With SO_REUSEPORT, the more specific of two sockets gets the connection.
            let other = ends.iter().find(|(other, of_group, _)| {
                *of_group != group && !are_shared && (other.covers(&end) || end.covers(other))
            });
            if let Some((_, _, other)) = other {
                let location = other.location.relative_to(&address.location);
                problems.push(address.problem(format!(
                    "`{}` cannot be listened on beside `{}`{location}: one contains the other, \
                     and they have different protocols or purposes",
                    address.value, other.value,
                )));
                break;
            }
            ends.push((end, group, address));
        }
    }
}
