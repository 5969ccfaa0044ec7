//! Keys about the resolution of the names of upstreams, of proxy routes and of streams.

use std::net::{IpAddr, SocketAddr};

use weft_config::{ConfigResult, Key, Located, ValueKind, quoted, quoted_list, show_time};
use weft_upstream::dns;
use weft_upstream::{DnsSettings, ProxySettings};

/// Settings that contain the settings of names.
pub(crate) trait HasDns {
    fn dns(&self) -> &DnsSettings;
    fn dns_mut(&mut self) -> &mut DnsSettings;
}

impl HasDns for ProxySettings {
    fn dns(&self) -> &DnsSettings {
        &self.dns
    }

    fn dns_mut(&mut self) -> &mut DnsSettings {
        &mut self.dns
    }
}

pub(crate) const fn resolver<T: HasDns>() -> Key<T> {
    Key {
        name: "resolver",
        help: "servers of the DNS that resolve the names of upstreams, by their addresses, in place of the \
               files and servers of the system",
        kind: ValueKind::Texts(|settings, texts| {
            settings.dns_mut().servers = servers(texts)?;
            Ok(())
        }),
        show: |settings| quoted_list(settings.dns().servers.iter().map(SocketAddr::to_string)),
        ..Key::FILE_ONLY
    }
}

pub(crate) const fn min_ttl<T: HasDns>() -> Key<T> {
    Key {
        name: "dns_min_ttl",
        help: "minimum time until a name is resolved again, if the time to live of its records is shorter",
        kind: ValueKind::Time(|settings, time| settings.dns_mut().ttl.min = time),
        show: |settings| quoted(&show_time(settings.dns().ttl.min)),
        ..Key::FILE_ONLY
    }
}

pub(crate) const fn max_ttl<T: HasDns>() -> Key<T> {
    Key {
        name: "dns_max_ttl",
        help: "maximum time until a name is resolved again, if the time to live of its records is longer",
        kind: ValueKind::Time(|settings, time| settings.dns_mut().ttl.max = time),
        show: |settings| quoted(&show_time(settings.dns().ttl.max)),
        ..Key::FILE_ONLY
    }
}

/// Returns the key for a field of [`DnsSettings`].
pub(crate) fn key_of_setting(field: &str) -> &str {
    match field {
        "ttl.min" => "dns_min_ttl",
        "ttl.max" => "dns_max_ttl",
        field => field,
    }
}

/// Maximum number of servers, as of the system.
const MAX_SERVERS: usize = 3;

fn servers(texts: Vec<Located<String>>) -> ConfigResult<Vec<SocketAddr>> {
    if let Some(text) = texts.get(MAX_SERVERS) {
        return Err(text.problem(format!("expected at most {MAX_SERVERS} servers")));
    }
    let server = |text: Located<String>| {
        let address = text.value.parse::<IpAddr>().map(|address| (address, dns::PORT).into());
        let address = address.or_else(|_| text.value.parse::<SocketAddr>());
        address.map_err(|_| {
            text.problem(format!(
                "expected the address of a server such as 10.0.0.53 or 127.0.0.1:8600, found {:?}",
                text.value
            ))
        })
    };
    texts.into_iter().map(server).collect()
}
