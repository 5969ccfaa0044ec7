//! Distributed traces: the identity of a request, which upstreams and scripts get.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::num::{NonZeroU64, NonZeroU128};
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use weft::header::{HeaderName, HeaderValue};
use weft::{Request, Response};
use weft_config::{BoolOrText, ConfigResult, Key, Located, ValueKind, quoted};
use weft_upstream::RequestFields;

use super::layer::{Layer, OpenContext, WorkerLayer, WrappedApp};
use super::{RouteOption, RouteOptions, Setting};
use crate::base::request_notes::RequestNotes;
use crate::base::share::Share;
use crate::base::trace_context::{TraceContext, TraceParent, trace_state};
use crate::template::TraceIds;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Spans of requests in distributed traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TracingOptions {
    /// Share of the traces that begin here which is sampled.
    sampled: Option<Setting<Share>>,
}

impl TracingOptions {
    /// Returns true if the requests are spans of traces.
    pub(crate) fn has_spans(&self) -> bool {
        self.sampled.as_ref().is_some_and(|share| share.value().is_some())
    }
}

impl RouteOption for TracingOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "tracing",
        help: "continue the trace of each request (W3C Trace Context), or begin one: upstreams \
               and scripts get `traceparent` with the span of this server (true); a share of the \
               traces such as \"10%\" is sampled if the trace begins here",
        kind: ValueKind::BoolOrText(set_tracing),
        show: |options| match &options.sampled {
            None => String::new(),
            Some(Setting::None) => "false".to_owned(),
            Some(Setting::Value(share)) if *share == Share::ALL => "true".to_owned(),
            Some(Setting::Value(share)) => quoted(&share.to_string()),
        },
        ..Key::FILE_ONLY
    }];

    fn or(self, outer: &Self) -> Self {
        TracingOptions { sampled: self.sampled.or(outer.sampled.clone()) }
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let sampled = self.sampled.as_ref().and_then(Setting::value).copied();
        Ok(sampled.map(|share| Layer::of_worker(move || Tracing::new(share))).into_iter().collect())
    }
}

fn set_tracing(options: &mut TracingOptions, value: Located<BoolOrText>) -> ConfigResult {
    options.sampled = Some(match &value.value {
        BoolOrText::Bool(false) => Setting::None,
        BoolOrText::Bool(true) => Setting::Value(Share::ALL),
        BoolOrText::Text(text) => {
            let invalid =
                || format!("expected true, false or a percentage such as \"10%\", found {text:?}");
            Setting::Value(Share::parse(text).ok_or_else(|| value.problem(invalid()))?)
        }
    });
    Ok(())
}

/// Continues the trace of a request, or begins one. Each worker has its own.
struct Tracing {
    /// Share of the traces that begin here which is sampled.
    sampled: Share,
    /// Random keys. IDs are keyed hashes of numbers that are used only once.
    keys: RandomState,
    next: Cell<u64>,
}

impl Tracing {
    fn new(sampled: Share) -> Tracing {
        Tracing { sampled, keys: RandomState::new(), next: Cell::new(0) }
    }

    fn random(&self) -> u64 {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        self.keys.hash_one(number)
    }

    fn context(&self, parent: Option<TraceParent>) -> TraceContext {
        let span_id = NonZeroU64::new(self.random()).unwrap_or(NonZeroU64::MIN);
        if let Some(TraceParent { trace_id, parent_id, is_sampled }) = parent {
            return TraceContext { trace_id, span_id, parent_id: Some(parent_id), is_sampled };
        }
        let (high, low) = (self.random(), self.random());
        let trace_id = NonZeroU128::new(u128::from(high) << 64 | u128::from(low));
        // The low half decides: it is a random number.
        let end = (u128::from(self.sampled.0) << 64) / 1_000_000;
        TraceContext {
            trace_id: trace_id.unwrap_or(NonZeroU128::MIN),
            span_id,
            parent_id: None,
            is_sampled: u128::from(low) < end,
        }
    }
}

/// Returns the value of `traceparent` if there is one, and it is valid.
fn parent(request: &Request) -> Option<TraceParent> {
    let mut values = request.headers().get_all("traceparent");
    match (values.next(), values.next()) {
        (Some(value), None) => TraceParent::parse(value),
        _ => None,
    }
}

/// Sets `tracestate`, unless it is passed on as it was received.
fn set_state(request: &mut Request, has_parent: bool) {
    let lines: Vec<&[u8]> = request.headers().get_all("tracestate").collect();
    if lines.is_empty() {
        return;
    }
    // The state of another trace means nothing.
    let state = has_parent.then(|| trace_state(lines.iter().copied())).flatten();
    if let (Some(state), [line]) = (&state, &*lines)
        && state == line
    {
        return;
    }
    match state.and_then(|state| HeaderValue::from_bytes(&state).ok()) {
        Some(state) => RequestFields::set(request, TRACESTATE, state),
        None => RequestFields::remove(request, TRACESTATE),
    }
}

impl WorkerLayer for Tracing {
    fn respond(
        self: &Rc<Self>,
        mut request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response> {
        // A request that another route has passed on keeps its span.
        if request.extensions().get::<TraceIds>().is_none() {
            let parent = parent(&request);
            let context = self.context(parent);
            let value = HeaderValue::try_from(context.to_string());
            RequestFields::set(&mut request, TRACEPARENT, value.expect("digits and hyphens"));
            set_state(&mut request, parent.is_some());
            if let Some(notes) = RequestNotes::of(&request) {
                notes.set_trace(context);
            }
            let TraceContext { trace_id, span_id, .. } = context;
            request.extensions_mut().insert(TraceIds { trace_id, span_id });
        }
        next.respond(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_a_share_of_the_traces_that_begin_here() {
        for millionths in [0, 10_000, 500_000, 1_000_000] {
            let tracing = Tracing::new(Share(millionths));
            let contexts: Vec<_> = (0..20_000).map(|_| tracing.context(None)).collect();
            let sampled = contexts.iter().filter(|context| context.is_sampled).count() as f64;
            let expected = 0.02 * f64::from(millionths);
            // Five standard deviations.
            let margin = 5.0 * (expected * (1.0 - f64::from(millionths) / 1e6)).sqrt();
            assert!((sampled - expected).abs() <= margin, "{millionths}: {sampled}");
            let ids: std::collections::HashSet<_> =
                contexts.iter().map(|context| (context.trace_id, context.span_id)).collect();
            assert_eq!(ids.len(), contexts.len());
        }
        let parent = TraceParent {
            trace_id: NonZeroU128::MIN,
            parent_id: NonZeroU64::MIN,
            is_sampled: true,
        };
        let context = Tracing::new(Share(0)).context(Some(parent));
        assert_eq!((context.trace_id, context.is_sampled), (parent.trace_id, true));
        assert_ne!(context.span_id, parent.parent_id);
    }
}
