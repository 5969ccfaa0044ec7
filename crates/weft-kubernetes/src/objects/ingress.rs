//! Ingress and IngressClass.

use serde::Deserialize;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IngressClass {
    pub(crate) controller: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Ingress {
    pub(crate) ingress_class_name: Option<String>,
    pub(crate) default_backend: Option<IngressBackend>,
    pub(crate) rules: Vec<IngressRule>,
    pub(crate) tls: Vec<IngressTls>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IngressBackend {
    pub(crate) service: Option<IngressService>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IngressService {
    pub(crate) name: String,
    pub(crate) port: IngressPort,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IngressPort {
    pub(crate) name: Option<String>,
    pub(crate) number: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IngressRule {
    pub(crate) host: Option<String>,
    pub(crate) http: IngressPaths,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IngressPaths {
    pub(crate) paths: Vec<IngressPath>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IngressPath {
    pub(crate) path: Option<String>,
    pub(crate) path_type: Option<String>,
    pub(crate) backend: IngressBackend,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IngressTls {
    pub(crate) hosts: Vec<String>,
    pub(crate) secret_name: Option<String>,
}
