//! Keys of the section of a host that its routes do not inherit.

use weft_config::{ConfigResult, Key, Located, ValueKind};

use super::addresses::{Addresses, check_address};
use crate::base::listen_end::{Ipv4Ports, TLS_PREFIX};

/// Values of these keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostSettings {
    /// Addresses that the host is bound to; an address with TLS may begin with `tls://`.
    pub(crate) listen: Addresses,
}

pub(crate) static HOST: [Key<HostSettings>; 1] = [Key {
    name: "listen",
    help: "address to which the host is bound: it gets no request from another one; as `listen` \
           at the top, but without names of the DNS, and with TLS as tls://ADDRESS or as in [tls]",
    kind: ValueKind::Texts(|host, given| {
        for address in &given {
            check(address)?;
        }
        host.listen = Addresses::of_list(given);
        Ok(())
    }),
    show: |host| match host.listen.list.is_empty() {
        true => String::new(),
        false => host.listen.show(),
    },
    ..Key::FILE_ONLY
}];

fn check(address: &Located<String>) -> ConfigResult {
    let text = address.value.strip_prefix(TLS_PREFIX).unwrap_or(&address.value);
    check_address(text).map_err(|message| address.problem(message))?;
    if Ipv4Ports::default().ends(text).is_empty() {
        return Err(address.problem(format!(
            "a host is bound to an IP address with a port, to `localhost:PORT`, `:PORT` or \
             `unix:PATH`; `{text}` has an address that is not known before it is bound"
        )));
    }
    Ok(())
}
