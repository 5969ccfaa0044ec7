//! Request IDs.

use weft::HeaderName;
use weft_config::{BoolOrText, ConfigResult, Key, Located, ValueKind, quoted};

use super::fields::{check_request_name, check_response_name, parse_name};
use super::{RouteOptions, Setting};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub(super) const REQUEST_ID: Key<RouteOptions> = Key {
    name: "request_id",
    flag: "",
    argument: "",
    help: "give each request an ID, which upstreams, scripts and the client get in the field \
           X-Request-ID (true) or in one of another name; that of `trusted_proxies` is kept",
    kind: ValueKind::BoolOrText(set_request_id),
    show: |options| match &options.request_id {
        None => String::new(),
        Some(Setting::None) => "false".to_owned(),
        Some(Setting::Value(name)) if *name == X_REQUEST_ID => "true".to_owned(),
        Some(Setting::Value(name)) => quoted(name.as_str()),
    },
};

fn set_request_id(options: &mut RouteOptions, value: Located<BoolOrText>) -> ConfigResult {
    options.request_id = Some(match value.value {
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
