//! Distributed traces.

use weft_config::{BoolOrText, ConfigResult, Key, Located, ValueKind, quoted};

use super::{RouteOptions, Setting};
use crate::route::Share;

const ALL: Share = Share(1_000_000);

pub(super) const TRACING: Key<RouteOptions> = Key {
    name: "tracing",
    flag: "",
    argument: "",
    help: "continue the trace of each request (W3C Trace Context), or begin one: upstreams and scripts \
           get `traceparent` with the span of this server (true), of which such as \"10%\" are \
           sampled if the trace begins here",
    kind: ValueKind::BoolOrText(set_tracing),
    show: |options| match &options.tracing {
        None => String::new(),
        Some(Setting::None) => "false".to_owned(),
        Some(Setting::Value(share)) if *share == ALL => "true".to_owned(),
        Some(Setting::Value(share)) => quoted(&share.to_string()),
    },
};

fn set_tracing(options: &mut RouteOptions, value: Located<BoolOrText>) -> ConfigResult {
    options.tracing = Some(match &value.value {
        BoolOrText::Bool(false) => Setting::None,
        BoolOrText::Bool(true) => Setting::Value(ALL),
        BoolOrText::Text(text) => {
            let invalid =
                || format!("expected true, false or a percentage such as \"10%\", found {text:?}");
            Setting::Value(Share::parse(text).ok_or_else(|| value.problem(invalid()))?)
        }
    });
    Ok(())
}
