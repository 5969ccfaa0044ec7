//! Addresses of the `listen` directives of a configuration.

use std::net::{Ipv6Addr, SocketAddr};

use crate::common::external::own_address;
use crate::idioms::file::Request;

/// Server whose addresses are used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Nginx,
    Weft,
}

/// Addresses of the `listen` directives of a configuration, as they are written.
pub struct Listeners {
    written: Vec<String>,
    first_port: u16,
}

impl Listeners {
    pub fn new(text: &str, index: usize) -> Listeners {
        let words = text.lines().filter_map(|line| line.trim().strip_prefix("listen "));
        let words = words.filter_map(|rest| rest.trim_end_matches(';').split(' ').next());
        let mut written: Vec<String> =
            words.map(|word| word.trim_end_matches(';').to_owned()).collect();
        written.sort();
        written.dedup();
        // The longest first, so that none is a part of another one.
        written.sort_by_key(|word| usize::MAX - word.len());
        Listeners { written, first_port: 10_000 + 40 * index as u16 }
    }

    /// Returns the address of this test for an address of the configuration.
    pub fn address(&self, index: usize, server: Server) -> SocketAddr {
        let port = self.first_port + 2 * index as u16 + u16::from(server == Server::Weft);
        match self.written[index].starts_with('[') {
            true => (Ipv6Addr::LOCALHOST, port).into(),
            false => own_address(10, port),
        }
    }

    pub fn fill(&self, text: &str, server: Server) -> String {
        let lines = text.lines().map(|line| match line.trim().strip_prefix("listen ") {
            Some(rest) => {
                let word = rest.split([' ', ';']).next().unwrap_or_default();
                let index = self.written.iter().position(|it| it == word).expect("an address");
                let address = self.address(index, server).to_string();
                line.replacen(word, &address, 1)
            }
            None => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns the address of a `listen` directive.
    pub fn find(&self, written: &str, server: Server) -> SocketAddr {
        let index = self.written.iter().position(|it| it == written).expect("a listener");
        self.address(index, server)
    }

    /// Returns the address of a request.
    pub fn of_request(&self, request: &Request, server: Server) -> SocketAddr {
        let named = request.fields.iter().find(|(name, _)| name == "Listener");
        let default = if request.is_secure { "443" } else { "80" };
        let wanted = named.map_or(default, |(_, value)| value);
        let find = |wanted: &str| self.written.iter().position(|it| it == wanted);
        let found = find(wanted).or_else(|| find(&format!("[::]:{wanted}")));
        self.address(found.unwrap_or_else(|| panic!("{}: no listener", request.line)), server)
    }
}
