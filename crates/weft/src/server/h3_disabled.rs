//! HTTP/3 in a build without the feature `http3`: no address has an endpoint.

use crate::error::Result;
use crate::net::address::LocalAddress;
use crate::net::http3_descriptor::Http3Descriptor;

#[derive(Default)]
pub(crate) struct Http3Endpoints(());

impl Http3Endpoints {
    pub(crate) fn close(&mut self, _: &LocalAddress) {}

    pub(crate) fn descriptors(&self) -> Result<Vec<Http3Descriptor>> {
        Ok(Vec::new())
    }
}
