//! Response heads of CGI scripts: the result does not depend on the bytes after the head, an
//! incomplete head stays incomplete for every prefix, and no field of a connection is passed on.
#![no_main]

use libfuzzer_sys::fuzz_target;

// Compiled alone: this module of weft-upstream is pure.
#[allow(dead_code, reason = "the program uses more of it")]
#[path = "../../crates/weft-upstream/src/script/script_head.rs"]
mod head;

const MAX_HEAD_BYTES: usize = 1 << 10;

fuzz_target!(|input: &[u8]| {
    for form in [head::HeadForm::Cgi, head::HeadForm::CgiOrHttp] {
        check(input, form);
    }
});

fn check(input: &[u8], form: head::HeadForm) {
    let parse = |input| head::parse(input, form, MAX_HEAD_BYTES);
    let Ok(Some((head, length))) = parse(input) else { return };
    assert!(length <= input.len().min(MAX_HEAD_BYTES));
    let (alone, end) = parse(&input[..length]).expect("valid").expect("complete");
    let parts = |head: &head::ScriptHead| {
        let fields: Vec<_> = head.fields.iter_shared().map(|(n, v)| (n.to_vec(), v)).collect();
        (head.status, head.length, fields)
    };
    assert_eq!((parts(&alone), end), (parts(&head), length));
    for end in 0..length {
        let prefix = parse(&input[..end]);
        assert!(!matches!(prefix, Ok(Some(_))), "complete after {end} of {length} bytes");
    }
    assert!((200..600).contains(&head.status.as_u16()), "{:?}", head.status);
    for (name, _) in head.fields.iter() {
        let name = name.to_ascii_lowercase();
        assert!(!head::HOP_BY_HOP_FIELDS.contains(&&*name), "{name} is passed on");
        assert_ne!(name, "status");
    }
    assert_eq!(head.fields.contains("content-length"), head.length.is_some());
}
