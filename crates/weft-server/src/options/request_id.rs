//! Request IDs.

use weft::header::HeaderName;
use weft::middleware::{RequestId, RequestIds};
use weft::{Application, Middleware, Request, Response};
use weft_config::{BoolOrText, ConfigResult, Key, Located, ValueKind, quoted};
use weft_upstream::RequestFields;

use super::fields::names::{check_request_name, check_response_name, parse_name};
use super::layer::{Layer, OpenContext};
use super::{RouteOption, RouteOptions, Setting};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The field of the ID of each request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RequestIdOptions {
    field: Option<Setting<HeaderName>>,
}

impl RequestIdOptions {
    /// Returns true if the key is set, also if it disables IDs.
    pub(crate) fn is_set(&self) -> bool {
        self.field.is_some()
    }
}

impl RouteOption for RequestIdOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "request_id",
        help: "give each request an ID, which upstreams, scripts and the client get in the field \
               X-Request-ID (true) or in the named field; the ID from `trusted_proxies` is kept",
        kind: ValueKind::BoolOrText(set_request_id),
        show: |options| match &options.field {
            None => String::new(),
            Some(Setting::None) => "false".to_owned(),
            Some(Setting::Value(name)) if *name == X_REQUEST_ID => "true".to_owned(),
            Some(Setting::Value(name)) => quoted(name.as_str()),
        },
        ..Key::FILE_ONLY
    }];

    fn or(self, outer: &Self) -> Self {
        RequestIdOptions { field: self.field.or(outer.field.clone()) }
    }

    fn open(&self, _: &RouteOptions, context: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let Some(name) = self.field.as_ref().and_then(Setting::value) else {
            return Ok(Vec::new());
        };
        let ids = RequestIds::new().header(name.clone()).trust(context.trusted_proxies.to_vec());
        let forward = ForwardRequestId(name.clone());
        Ok(vec![Layer::of_middleware(ids), Layer::of_middleware(forward)])
    }
}

fn set_request_id(options: &mut RequestIdOptions, value: Located<BoolOrText>) -> ConfigResult {
    options.field = Some(match value.value {
        BoolOrText::Bool(false) => Setting::None,
        BoolOrText::Bool(true) => Setting::Value(X_REQUEST_ID),
        BoolOrText::Text(name) => {
            let text = Located { location: value.location, value: name };
            parse_name(&text, &text.value, check_request_name)?;
            Setting::Value(parse_name(&text, &text.value, check_response_name)?)
        }
    });
    Ok(())
}

/// Passes the ID of a request on in a field, which replaces the ID of the client.
#[derive(Clone)]
struct ForwardRequestId(HeaderName);

impl Middleware for ForwardRequestId {
    fn call(
        &self,
        mut request: Request,
        next: &impl Application,
    ) -> impl Future<Output = Response> {
        let id = request.extensions().get::<RequestId>().map(|id| id.as_value().clone());
        if let Some(id) = id {
            RequestFields::set(&mut request, self.0.clone(), id);
        }
        next.call(request)
    }
}
