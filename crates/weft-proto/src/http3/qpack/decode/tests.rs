use super::*;

/// Decodes a section of stream 4.
fn decoded(decoder: &mut Decoder, section: &[u8]) -> Result<Vec<String>, DecodeError> {
    let mut fields = Vec::new();
    let result = decoder.decode(4, section, |Field { name, value, .. }| {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        fields.push(format!("{}: {}", text(name), text(value)));
        true
    });
    result.map(|decoded| {
        assert_eq!(decoded, Decoded::Complete);
        fields
    })
}

fn feedback(decoder: &mut Decoder) -> Vec<u8> {
    let feedback = decoder.feedback().unwrap().to_vec();
    decoder.on_feedback_sent(feedback.len());
    feedback
}

fn is_blocked(decoder: &mut Decoder, stream: u64, section: &[u8]) -> bool {
    match decoder.decode(stream, section, |_| true) {
        Ok(decoded) => decoded == Decoded::Blocked,
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn decodes_all_forms_of_the_static_table() {
    for (section, fields) in [
        // RFC 9204 §B.1
        (&b"\0\0\x51\x0b/index.html"[..], &[":path: /index.html"][..]),
        (b"\0\0\xd1\xd7\xc1", &[":method: GET", ":scheme: https", ":path: /"]),
        (b"\0\0\xff\x23", &["x-frame-options: sameorigin"]),
        (b"\0\0\x5f\x39\x02en", &["accept-language: en"]),
        (b"\0\0\x27\x03custom-key\x03abc", &["custom-key: abc"]),
        (b"\0\0\x37\x03custom-key\x00", &["custom-key: "]),
        // Huffman-coded: RFC 7541 §C.4.1
        (
            b"\0\0\x50\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            &[":authority: www.example.com"],
        ),
        (b"\0\0", &[]),
        (b"\0\x07\xc1", &[":path: /"]), // a base without meaning
    ] {
        assert_eq!(decoded(&mut Decoder::default(), section).unwrap(), fields, "{section:?}");
        let mut decoder = Decoder::new(4_096, 16);
        assert_eq!(decoded(&mut decoder, section).unwrap(), fields, "{section:?}");
        assert_eq!(feedback(&mut decoder), b"", "{section:?}");
    }
}

#[test]
fn decodes_rfc_examples() {
    // RFC 9204 appendix B.2 to B.5
    let mut decoder = Decoder::new(220, 1);
    let steps = [
        (
            &b"\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/path"[..],
            &[":path: /sample/path", ":authority: www.example.com"][..],
            106,
        ),
        (
            b"\x4acustom-key\x0ccustom-value",
            &["custom-key: custom-value", ":path: /sample/path", ":authority: www.example.com"],
            160,
        ),
        (
            b"\x02",
            &[
                ":authority: www.example.com",
                "custom-key: custom-value",
                ":path: /sample/path",
                ":authority: www.example.com",
            ],
            217,
        ),
        (
            b"\x81\x0dcustom-value2",
            &[
                "custom-key: custom-value2",
                ":authority: www.example.com",
                "custom-key: custom-value",
                ":path: /sample/path",
            ],
            215,
        ),
    ];
    let sections = [
        (&b"\x03\x81\x10\x11"[..], &[":authority: www.example.com", ":path: /sample/path"][..]),
        (b"\0\0", &[]),
        (
            b"\x05\0\x80\xc1\x81",
            &[":authority: www.example.com", ":path: /", "custom-key: custom-value"],
        ),
        (b"\x06\0\x80", &["custom-key: custom-value2"]),
    ];
    // Sections without references are not acknowledged, but the insertion is.
    let answers = [b"\x84", b"\x01", b"\x84", b"\x84"];
    for (((instructions, entries, size), (section, fields)), answer) in
        steps.into_iter().zip(sections).zip(answers)
    {
        decoder.read_encoder_stream(instructions).unwrap();
        assert_eq!(decoder.table.show().0, entries);
        assert_eq!(decoder.table.show().1, size);
        assert_eq!(decoded(&mut decoder, section).unwrap(), fields);
        assert_eq!(feedback(&mut decoder), answer);
    }
}

#[test]
fn decodes_all_forms_of_the_dynamic_table() {
    let mut decoder = Decoder::new(4_096, 0);
    // Entries 0 to 2: "a: 1", "b: 2", and "b: 3" by the name of entry 1.
    decoder.read_encoder_stream(b"\x3f\xe1\x1f\x41a\x011\x41b\x012\x80\x013").unwrap();
    for (section, fields) in [
        // Base 3, relative indices.
        (&b"\x04\0\x80\x81\x82"[..], &["b: 3", "b: 2", "a: 1"][..]),
        (b"\x04\0\x42\x01x\x60\x01y", &["a: x", "b: y"]),
        // Base 0 and 1, indices behind the base.
        (b"\x04\x82\x10\x11\x12", &["a: 1", "b: 2", "b: 3"]),
        (b"\x04\x81\x10\x80\x00\x01x\x09\x01y", &["b: 2", "a: 1", "b: x", "b: y"]),
        // Base 5, whose last two entries do not exist.
        (b"\x04\x02\x82", &["b: 3"]),
        // A required count of 2.
        (b"\x03\0\x80", &["b: 2"]),
    ] {
        assert_eq!(decoded(&mut decoder, section).unwrap(), fields, "{section:?}");
    }
}

#[test]
fn rejects_malformed_sections() {
    for section in [
        &b""[..],
        b"\0",
        b"\0\x80\xc1", // a base below 0
        b"\0\0\x80",   // a reference without a required insert count
        b"\0\0\x10",
        b"\0\0\x40\x01a",
        b"\0\0\x00\x01a",
        b"\0\0\xff\x24", // behind the end of the static table
        b"\0\0\x51",
        b"\0\0\x51\x02a",
        b"\0\0\x23ab",
        b"\0\0\x29\xff\x00", // invalid Huffman code
        b"\x03\0\x80",       // a required insert count of 2, of which none may be missing
        b"\x02\x81\x10",     // a base below 0
        b"\x02\0\x81",       // an index below 0
        b"\x02\0\x10",       // an index above the required insert count
        b"\x02\x01\x80",
        b"\x02\0\x41\x01a",
        b"\x02\0\x00\x01a",
        b"\xff\x02\0", // a required insert count of more than the full range
        b"\x01\0",     // a required insert count of 0, encoded as a multiple of the range
    ] {
        let mut decoder = Decoder::new(4_096, 0);
        decoder.read_encoder_stream(b"\x3f\xe1\x1f\x41a\x011").unwrap();
        assert_eq!(decoded(&mut decoder, b"\x02\0\x80").unwrap(), ["a: 1"]);
        let result = decoded(&mut decoder, section);
        assert_eq!(result, Err(DecodeError::Malformed), "{section:?}");
        // Without a dynamic table, no section has references.
        let result = decoded(&mut Decoder::default(), section);
        assert_eq!(result, Err(DecodeError::Malformed), "{section:?}");
    }
}

#[test]
fn required_insert_counts_wrap() {
    // Three entries: counts are sent modulo 6.
    let mut decoder = Decoder::new(100, 0);
    decoder.read_encoder_stream(b"\x3f\x45").unwrap();
    for count in 1..=40u64 {
        let value = count.to_string();
        let insertion = [b"\x41a".as_slice(), &[value.len() as u8], value.as_bytes()].concat();
        decoder.read_encoder_stream(&insertion).unwrap();
        // The table has room for the newest entry and the entry before it.
        let section = [(count % 6) as u8 + 1, 0, 0x80];
        assert_eq!(decoded(&mut decoder, &section).unwrap(), [format!("a: {count}")]);
        if count > 1 {
            let section = [((count - 1) % 6) as u8 + 1, 0, 0x80];
            assert_eq!(decoded(&mut decoder, &section).unwrap(), [format!("a: {}", count - 1)]);
        }
        if count > 2 {
            let section = [((count - 2) % 6) as u8 + 1, 0, 0x80];
            assert_eq!(decoded(&mut decoder, &section), Err(DecodeError::Malformed));
        }
    }
}

#[test]
fn instructions_may_arrive_in_pieces_of_any_size() {
    let long = "x".repeat(300);
    let mut input =
        b"\x3f\xe1\x1f\xc0\x0fwww.example.com\x4acustom-key\x0ccustom-value\x01".to_vec();
    input.extend_from_slice(b"\x81\x7f\xad\x01");
    input.extend_from_slice(long.as_bytes());
    // Huffman-coded: RFC 7541 §C.4.3
    input.extend_from_slice(b"\x68\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89");
    input.extend_from_slice(b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf\x3f\xe0\x1f");
    let mut entries = None;
    for size in 1..=input.len() {
        let mut decoder = Decoder::new(4_096, 16);
        for piece in input.chunks(size) {
            decoder.read_encoder_stream(piece).unwrap();
        }
        let table = decoder.table.show().0;
        assert_eq!(*entries.get_or_insert_with(|| table.clone()), table, "pieces of {size}");
    }
    let expected = [
        "custom-key: custom-value",
        &format!("custom-key: {long}"),
        ":authority: www.example.com",
        "custom-key: custom-value",
        ":authority: www.example.com",
    ];
    assert_eq!(entries.unwrap(), expected);
}

#[test]
fn rejects_invalid_instructions() {
    let text = |length: usize| "x".repeat(length).into_bytes();
    let largest = [b"\xc0\x7f\x58".as_slice(), &text(215)].concat();
    let fits = [b"\xc0\x7f\x57".as_slice(), &text(214)].concat();
    for (instruction, is_valid) in [
        (&b"\x3f\xe2\x01"[..], false), // a capacity of 257
        (b"\x3f\xe1\x01", true),       // 256
        (b"\x20", true),
        (b"\xff\x24\x01a", false), // a name behind the end of the static table
        (b"\xff\x23\x01a", true),
        (b"\x80\x01b", true),  // the only entry
        (b"\x81\x01b", false), // a missing entry
        (b"\x00", true),
        (b"\x01", false),
        (&largest, false), // an entry of 257 bytes
        (&fits, true),
        (b"\xc0\x7f\x82\x01", false), // a string of 257 bytes, at its length
        (b"\x5f\xe2\x01", false),
        (b"\xc0\x82\xff\xff", false), // invalid Huffman code
        (b"\x3f\xff\xff\xff\xff\xff", false),
    ] {
        let mut decoder = Decoder::new(256, 16);
        decoder.read_encoder_stream(b"\x3f\xe1\x01\x41a\x011").unwrap();
        let expected = if is_valid { Ok(()) } else { Err(ErrorCode::QPACK_ENCODER_STREAM_ERROR) };
        let whole = decoder.read_encoder_stream(instruction).map(|_| ());
        assert_eq!(whole, expected, "{instruction:?}");
        // Without a table, only a capacity of 0 is valid.
        let without = Decoder::default().read_encoder_stream(instruction);
        assert_eq!(without.is_ok(), instruction == b"\x20", "{instruction:?}");
    }
}

#[test]
fn work_of_instructions_is_reported() {
    let name = "n".repeat(1_000);
    let mut decoder = Decoder::new(4_096, 16);
    let insertion = [b"\x3f\xe1\x1f\x5f\xc9\x07", name.as_bytes(), b"\0"].concat();
    let work = |instructions, copied_bytes| Ok(TableWork { instructions, copied_bytes });
    assert_eq!(decoder.read_encoder_stream(&insertion), work(2, 0));
    assert_eq!(decoder.read_encoder_stream(b"\x80\0\x80\x01v"), work(2, 2_000));
    assert_eq!(decoder.read_encoder_stream(b"\x00\x00"), work(2, 2 * 1_033));
    assert_eq!(decoder.read_encoder_stream(b"\xc0\x01a"), work(1, 0));
    assert_eq!(decoder.read_encoder_stream(b"\x3f"), work(0, 0));
    assert_eq!(decoder.read_encoder_stream(b"\xe1\x1f\x3f\xe1\x1f"), work(2, 0));
}

#[test]
fn blocked_streams_are_bounded_and_unblocked_in_any_order() {
    let mut decoder = Decoder::new(4_096, 3);
    for (stream, section) in [(0, b"\x03\0\x80"), (4, b"\x02\0\x80"), (8, b"\x04\0\x80")] {
        assert!(is_blocked(&mut decoder, stream, section));
    }
    // A stream counts once.
    assert!(is_blocked(&mut decoder, 4, b"\x02\0\x80"));
    let result = decoder.decode(12, b"\x02\0\x80", |_| true);
    assert_eq!(result, Err(DecodeError::Malformed));
    // Other streams are not affected.
    assert_eq!(decoded(&mut decoder, b"\0\0\xc1").unwrap(), [":path: /"]);

    assert_eq!(decoder.next_unblocked(), None);
    decoder.read_encoder_stream(b"\x3f\xe1\x1f\x41a\x011").unwrap();
    assert_eq!((decoder.next_unblocked(), decoder.next_unblocked()), (Some(4), None));
    decoder.cancel(0);
    decoder.read_encoder_stream(b"\x41a\x012\x41a\x013").unwrap();
    assert_eq!((decoder.next_unblocked(), decoder.next_unblocked()), (Some(8), None));
    assert!(!is_blocked(&mut decoder, 8, b"\x04\0\x80"));
    // The acknowledgment includes all insertions.
    assert_eq!(feedback(&mut decoder), b"\x40\x88");
}

#[test]
fn feedback_is_bounded() {
    let mut decoder = Decoder::new(4_096, 0);
    decoder.read_encoder_stream(b"\x3f\xe1\x1f").unwrap();
    // If the client does not read, later insertions are reported together.
    for _ in 0..100_000 {
        decoder.read_encoder_stream(b"\x41a\x011").unwrap();
        assert!(decoder.feedback().unwrap().len() <= 4_097);
    }
    for bytes in 4_098..=8_192 {
        decoder.cancel(4);
        assert_eq!(decoder.feedback().map(<[u8]>::len), Ok(bytes));
    }
    decoder.cancel(4);
    assert_eq!(decoder.feedback(), Err(ErrorCode::EXCESSIVE_LOAD));
    decoder.on_feedback_sent(8_193);
    let mut increment = Vec::new();
    integer::write(&mut increment, 6, 0, 100_000 - 4_097);
    assert_eq!(feedback(&mut decoder), increment);
    assert_eq!(feedback(&mut decoder), b"");
}

#[test]
fn without_a_table_nothing_is_sent() {
    let mut decoder = Decoder::default();
    decoder.cancel(4);
    assert_eq!(decoded(&mut decoder, b"\0\0\xc1").unwrap(), [":path: /"]);
    assert_eq!(feedback(&mut decoder), b"");
}

#[test]
fn callback_can_stop_decoding() {
    let mut taken = 0;
    let stopped = Decoder::default().decode(4, b"\0\0\xc1\xc1\xc1\xc1", |_| {
        taken += 1;
        taken < 3
    });
    assert_eq!((stopped, taken), (Err(DecodeError::Stopped), 3));
}
