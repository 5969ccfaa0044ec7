//! Streams of the plan.

use weft::Address;

use crate::config::{Located, Problem, StreamConfig};
use crate::stream::StreamSettings;

/// A validated section of `[streams]`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StreamPlan {
    pub(crate) listen: Vec<String>,
    pub(crate) settings: Located<StreamSettings>,
}

/// Returns the addresses of all sections, each with the location of its section.
pub(super) fn stream_addresses(streams: &[StreamConfig]) -> Vec<Located<String>> {
    let addresses = |stream: &StreamConfig| {
        let texts = stream.listen.value.split_whitespace().map(str::to_owned);
        texts.map(|text| stream.listen.clone().map(|_| text)).collect::<Vec<_>>()
    };
    streams.iter().flat_map(addresses).collect()
}

/// Validates the sections. What is missing is an error only if the configuration is complete.
pub(super) fn plan_streams(
    streams: Vec<StreamConfig>,
    is_complete: bool,
    problems: &mut Vec<Problem>,
) -> Vec<StreamPlan> {
    let plan = |StreamConfig { listen, settings }: StreamConfig| {
        let addresses: Vec<_> = listen.value.split_whitespace().map(str::to_owned).collect();
        let invalid = addresses.iter().filter_map(|address| check_address(address).err());
        problems.extend(invalid.map(|message| listen.problem(message)));
        if addresses.is_empty() {
            problems.push(listen.problem("expected an address to listen on, such as :5432"));
        }
        if is_complete && settings.to.is_empty() && settings.server_names.is_empty() {
            problems.push(listen.problem("expected `to = \"HOST:PORT\"`, or `server_names`"));
        }
        StreamPlan { listen: addresses, settings: listen.map(|_| settings) }
    };
    streams.into_iter().map(plan).collect()
}

fn check_address(address: &str) -> Result<(), String> {
    match address.parse() {
        Ok(Address::Unix(_)) => Err("a stream listens on HOST:PORT or :PORT".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.reason().to_owned()),
    }
}
