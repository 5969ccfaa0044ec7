//! Response heads of CGI scripts: the result does not depend on the bytes after the head, an
//! incomplete head stays incomplete for every prefix, and no field of a connection is passed on.
#![no_main]

use libfuzzer_sys::fuzz_target;

// Compiled alone: this module of weft-upstream is pure.
#[allow(dead_code, reason = "the program uses more of it")]
#[path = "../../crates/weft-upstream/src/script/script_head.rs"]
mod script_head;

#[path = "../../crates/weft-upstream/src/head/body_hints.rs"]
mod body_hints;

/// The path by which the module imports the other one.
mod head {
    pub(crate) use crate::body_hints;
}

const MAX_HEAD_BYTES: usize = 1 << 10;

fuzz_target!(|input: &[u8]| {
    for form in [script_head::HeadForm::Cgi, script_head::HeadForm::CgiOrHttp] {
        check(input, form);
    }
});

fn check(input: &[u8], form: script_head::HeadForm) {
    let parser = || script_head::ScriptHeadParser::new(form, MAX_HEAD_BYTES);
    let parse = |input| parser().parse(input);
    let Ok(Some((head, length))) = parse(input) else { return };
    assert!(length <= input.len().min(MAX_HEAD_BYTES));
    let (alone, end) = parse(&input[..length]).expect("valid").expect("complete");
    let parts = |head: &script_head::ScriptHead| {
        let fields: Vec<_> = head.fields.iter_shared().map(|(n, v)| (n.to_vec(), v)).collect();
        (head.status, head.length, fields)
    };
    assert_eq!((parts(&alone), end), (parts(&head), length));
    let mut in_pieces = parser();
    for end in 0..length {
        for prefix in [parse(&input[..end]), in_pieces.parse(&input[..end])] {
            assert!(matches!(prefix, Ok(None)), "{end} of {length} bytes");
        }
    }
    let (in_pieces, end) = in_pieces.parse(input).expect("valid").expect("complete");
    assert_eq!((parts(&in_pieces), end), (parts(&head), length));
    assert!((200..600).contains(&head.status.as_u16()), "{:?}", head.status);
    for (name, _) in head.fields.iter() {
        let name = name.to_ascii_lowercase();
        assert!(!script_head::HOP_BY_HOP_FIELDS.contains(&&*name), "{name} is passed on");
        assert_ne!(name, "status");
    }
    assert_eq!(head.fields.contains("content-length"), head.length.is_some());
}
