//! Options of `weft kubernetes`.

use std::path::PathBuf;

use lexopt::Parser;
use lexopt::prelude::*;

/// Options of `weft kubernetes`. Those of the server may be given, too.
#[derive(Default)]
pub(crate) struct KubernetesOptions {
    /// File with the address and the credentials of the API server.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Name of the controller in GatewayClasses.
    pub(crate) controller: Option<String>,
    /// Addresses for the statuses of Gateways and Ingresses.
    pub(crate) addresses: Vec<String>,
    /// Serve the class `nginx`.
    pub(crate) nginx_class: bool,
    pub(crate) port_offset: Option<u16>,
    /// Namespace and name of the lease.
    pub(crate) lease: Option<(String, String)>,
    /// Namespaces whose Secrets may be used; empty: all.
    pub(crate) secret_namespaces: Vec<String>,
}

/// Options of `weft kubernetes` that do not correspond to a key.
pub(crate) const KUBERNETES_OPTIONS: [(&str, &str); 7] = [
    ("--kubeconfig FILE", "address and credentials of the API server [default: of the pod]"),
    ("--controller NAME", "name in GatewayClasses [default: weft/gateway]"),
    ("--address ADDR", "address for the status of Gateways and Ingresses; may be repeated"),
    ("--nginx-class", "serve the Ingresses of the class nginx, too"),
    ("--port-offset N", "number that is added to ports below 1024 [default: 10000]"),
    ("--lease NS/NAME", "lease of the process that writes statuses [default: default/weft]"),
    ("--secret-namespace NS", "namespace whose certificates may be used; may be repeated"),
];

impl KubernetesOptions {
    /// Applies an option; returns false for any other.
    pub(super) fn set_option(
        &mut self,
        name: &str,
        parser: &mut Parser,
    ) -> Result<bool, lexopt::Error> {
        match name {
            "kubeconfig" => self.kubeconfig = Some(parser.value()?.into()),
            "controller" => self.controller = Some(parser.value()?.string()?),
            "address" => self.addresses.push(parser.value()?.string()?),
            "nginx-class" => self.nginx_class = true,
            "port-offset" => self.port_offset = Some(parser.value()?.parse()?),
            "lease" => {
                let value = parser.value()?.string()?;
                let lease = value
                    .split_once('/')
                    .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
                let (namespace, name) = lease.ok_or("--lease is NAMESPACE/NAME")?;
                self.lease = Some((namespace.to_owned(), name.to_owned()));
            }
            "secret-namespace" => self.secret_namespaces.push(parser.value()?.string()?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
