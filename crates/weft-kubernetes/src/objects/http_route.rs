//! HTTPRoute of the Gateway API.

use serde::Deserialize;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpRoute {
    pub(crate) parent_refs: Vec<ParentReference>,
    pub(crate) hostnames: Vec<String>,
    pub(crate) rules: Vec<HttpRule>,
}

/// Reference of a route to a Gateway, and maybe to one of its listeners.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ParentReference {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) section_name: Option<String>,
    pub(crate) port: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpRule {
    pub(crate) matches: Vec<HttpMatch>,
    pub(crate) filters: Vec<HttpFilter>,
    pub(crate) backend_refs: Vec<BackendReference>,
    pub(crate) timeouts: HttpTimeouts,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpTimeouts {
    pub(crate) request: Option<String>,
    pub(crate) backend_request: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpMatch {
    pub(crate) path: Option<PathMatch>,
    pub(crate) headers: Vec<ValueMatch>,
    pub(crate) query_params: Vec<ValueMatch>,
    pub(crate) method: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PathMatch {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) value: Option<String>,
}

/// Match of a header field or a parameter of the query.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ValueMatch {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HttpFilter {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) request_header_modifier: Option<HeaderModifier>,
    pub(crate) response_header_modifier: Option<HeaderModifier>,
    pub(crate) request_redirect: Option<RequestRedirect>,
    pub(crate) url_rewrite: Option<UrlRewrite>,
    pub(crate) request_mirror: Option<RequestMirror>,
    pub(crate) cors: Option<CorsFilter>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HeaderModifier {
    pub(crate) set: Vec<HeaderValue>,
    pub(crate) add: Vec<HeaderValue>,
    pub(crate) remove: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HeaderValue {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RequestRedirect {
    pub(crate) scheme: Option<String>,
    pub(crate) hostname: Option<String>,
    pub(crate) path: Option<PathModifier>,
    pub(crate) port: Option<u16>,
    pub(crate) status_code: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct UrlRewrite {
    pub(crate) hostname: Option<String>,
    pub(crate) path: Option<PathModifier>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PathModifier {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) replace_full_path: Option<String>,
    pub(crate) replace_prefix_match: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RequestMirror {
    pub(crate) backend_ref: BackendReference,
    pub(crate) percent: Option<u32>,
    pub(crate) fraction: Option<Fraction>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Fraction {
    pub(crate) numerator: u32,
    pub(crate) denominator: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CorsFilter {
    pub(crate) allow_origins: Vec<String>,
    pub(crate) allow_credentials: Option<bool>,
    pub(crate) allow_methods: Vec<String>,
    pub(crate) allow_headers: Vec<String>,
    pub(crate) expose_headers: Vec<String>,
    pub(crate) max_age: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BackendReference {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) weight: Option<u32>,
    pub(crate) filters: Vec<HttpFilter>,
}
