//! Values by network of the client. Pure.

use std::collections::HashMap;
use std::net::IpAddr;

use weft::net::IpNetwork;
use weft_config::Problem;

use super::Entry;
use super::map_text::MapText;

/// Values by network. An address is looked up once for each size of the networks: at most 33 times
/// for IPv4, and 129 times for IPv6.
#[derive(Default)]
pub(super) struct ClientTable {
    /// Number of addresses of a network less one, the smallest first, by family.
    sizes: Vec<(bool, u128)>,
    networks: HashMap<(bool, u128, u128), MapText>,
}

impl ClientTable {
    pub(super) fn new(entries: &[Entry<IpNetwork>], problems: &mut Vec<Problem>) -> ClientTable {
        let mut table = ClientTable::default();
        for Entry { key, value } in entries {
            let (first, last) = key.value.range();
            let ((is_v6, first), (_, last)) = (bits(first), bits(last));
            let size = last - first;
            match MapText::parse(value) {
                Ok(text) => {
                    if table.networks.insert((is_v6, first, size), text).is_some() {
                        problems.push(key.problem(format!("{} is given twice", key.value)));
                    }
                }
                Err(problem) => problems.push(problem),
            }
            table.sizes.push((is_v6, size));
        }
        table.sizes.sort();
        table.sizes.dedup();
        table
    }

    /// Returns the value of the smallest network with an address.
    pub(super) fn find(&self, address: IpAddr) -> Option<&MapText> {
        let (is_v6, address) = bits(address.to_canonical());
        let sizes = self.sizes.iter().filter(|(family, _)| *family == is_v6);
        sizes.into_iter().find_map(|(_, size)| self.networks.get(&(is_v6, address & !size, *size)))
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &MapText> {
        self.networks.values()
    }
}

/// Returns true for an address of IPv6, and the bits of an address.
fn bits(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(address) => (false, address.to_bits().into()),
        IpAddr::V6(address) => (true, address.to_bits()),
    }
}
