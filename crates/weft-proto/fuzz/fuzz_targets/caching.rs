//! Decisions about requests and responses with any fields, and the stored form of the decisions,
//! which caches read from files.
#![no_main]

use http::{Method, StatusCode};
use libfuzzer_sys::fuzz_target;
use weft_proto::Headers;
use weft_proto::semantics::caching::vary::Selector;
use weft_proto::semantics::caching::{Defaults, Exchange, Policy, RequestControl};

fuzz_target!(|input: (u32, &[u8], &[u8], &[u8])| {
    let (time, request, response, stored) = input;
    let (Some(request), Some(response)) = (headers(request), headers(response)) else { return };
    let received = u64::from(time);
    let exchange = Exchange {
        method: &Method::GET,
        request: &request,
        status: StatusCode::OK,
        response: &response,
        requested: received,
        received,
    };
    if let Ok(policy) = Policy::of(&exchange, &Defaults { is_heuristic: true, ..Defaults::default() }) {
        let selector = Selector::of(&request, &response);
        assert!(selector.matches(&request) && selector.has_fields_of(&response));
        assert_eq!(policy.age(received).checked_add(9), Some(policy.age(received + 9)));
        policy.reuse(&RequestControl::of(&request), received + 9);
        check(&policy, &selector);
    }
    let input = &mut { stored };
    if let (Some(policy), Some(selector)) = (Policy::load(input), Selector::load(input)) {
        policy.reuse(&RequestControl::of(&request), received);
        selector.matches(&request);
        check(&policy, &selector);
    }
});

fn headers(lines: &[u8]) -> Option<Headers> {
    Headers::parse([lines, b"\r\n\r\n"].concat()).ok()
}

/// Checks that the stored form leads to the same values.
fn check(policy: &Policy, selector: &Selector) {
    let mut bytes = Vec::new();
    policy.store(&mut bytes);
    selector.store(&mut bytes);
    let input = &mut &bytes[..];
    assert_eq!(Policy::load(input).as_ref(), Some(policy));
    assert_eq!(Selector::load(input).as_ref(), Some(selector));
    assert!(input.is_empty());
}
