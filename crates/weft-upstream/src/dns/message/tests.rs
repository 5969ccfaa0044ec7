use super::*;

/// The name at the beginning of the question.
const QUESTION: u16 = 0xc00c;

/// Returns a response to the query with these flags and records: name, type, TTL and data.
fn response(
    question: &Question<'_>,
    flags: u16,
    records: &[(&[u8], u16, u32, Vec<u8>)],
) -> Vec<u8> {
    let mut out = question.message(7, false).unwrap();
    out[2..4].copy_from_slice(&(QR | flags).to_be_bytes());
    out[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    for (name, kind, ttl, data) in records {
        out.extend_from_slice(name);
        put_numbers(&mut out, &[*kind, CLASS_IN]);
        out.extend(ttl.to_be_bytes());
        put_numbers(&mut out, &[data.len() as u16]);
        out.extend_from_slice(data);
    }
    out
}

fn wire(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_name(&mut out, name).unwrap();
    out
}

const HOST: Question<'static> = Question { name: "a.example", kind: RecordType::A };

#[test]
fn queries_are_those_of_another_implementation() {
    // dnspython: make_query("a.example", "SRV", use_edns=0, payload=1232).
    let question = Question { name: "a.example.", kind: RecordType::Srv };
    let expected = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\x01\x01a\x07example\0\0\x21\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
    assert_eq!(question.message(0x1234, true).unwrap(), expected);
    for invalid in ["", "a..b", &"a".repeat(64), &["abc"; 64].join(".")] {
        let question = Question { name: invalid, kind: RecordType::A };
        assert!(question.message(0, true).is_err(), "{invalid}");
    }
}

#[test]
fn reads_records_behind_aliases() {
    let own = &QUESTION.to_be_bytes()[..];
    let address = |last: u8| RecordData::Address(IpAddr::from([192, 0, 2, last]));
    let (b, c) = (wire("B.example"), wire("c.example"));
    for (records, expected) in [
        (vec![(own, 1, 60, vec![192, 0, 2, 1])], (vec![address(1)], 60)),
        // The smallest time to live, in any order, behind aliases of another case.
        (
            vec![
                (&c[..], 1, 90, vec![192, 0, 2, 1]),
                (&b[..], TYPE_CNAME, 30, wire("C.EXAMPLE")),
                (own, TYPE_CNAME, 600, wire("b.example")),
                (&c[..], 1, 95, vec![192, 0, 2, 2]),
            ],
            (vec![address(1), address(2)], 30),
        ),
        // Records of other names, types and classes are ignored.
        (
            vec![
                (&c[..], 1, 1, vec![192, 0, 2, 9]),
                (own, 28, 1, vec![0; 16]),
                (own, 46, 1, vec![0; 50]),
                (own, 1, 60, vec![192, 0, 2, 1]),
            ],
            (vec![address(1)], 60),
        ),
        (vec![(own, 1, u32::MAX, vec![192, 0, 2, 1])], (vec![address(1)], 0)),
    ] {
        let (data, ttl) = expected;
        let answer = HOST.read_answer(7, &response(&HOST, 0, &records));
        assert_eq!(answer, Some(Answer::Records(Records { data, ttl })));
    }
}

#[test]
fn reads_services() {
    let question = Question { name: "_http._tcp.example", kind: RecordType::Srv };
    let own = &QUESTION.to_be_bytes()[..];
    let service = |numbers: [u16; 3], target: &[u8]| {
        let mut data = Vec::new();
        put_numbers(&mut data, &numbers);
        data.extend_from_slice(target);
        (own, 33, 60, data)
    };
    let records = [
        service([10, 5, 80], &wire("A.example")),
        // A reference to `example` in the question.
        service([20, 0, 81], b"\x01b\xc0\x17"),
        // No service, no port, and no name of a host.
        service([0, 0, 80], &[0]),
        service([0, 0, 0], &wire("c.example")),
        service([0, 0, 80], &wire("a b.example")),
    ];
    let data = [(10, 5, 80, "a.example"), (20, 0, 81, "b.example")];
    let data = data.map(|(priority, weight, port, target)| {
        RecordData::Srv(SrvRecord { priority, weight, port, target: target.to_owned() })
    });
    let expected = Answer::Records(Records { data: data.into(), ttl: 60 });
    assert_eq!(question.read_answer(7, &response(&question, 0, &records)), Some(expected));
}

#[test]
fn other_messages_are_not_the_response() {
    let record = (&QUESTION.to_be_bytes()[..], 1, 60, vec![192, 0, 2, 1]);
    let valid = response(&HOST, 0, &[record]);
    assert!(matches!(HOST.read_answer(7, &valid), Some(Answer::Records(_))));
    assert_eq!(HOST.read_answer(8, &valid), None, "another id");
    let aaaa = Question { kind: RecordType::Aaaa, ..HOST };
    assert_eq!(aaaa.read_answer(7, &valid), None, "another type");
    let other = Question { name: "b.example", ..HOST };
    assert_eq!(other.read_answer(7, &valid), None, "another name");
    assert_eq!(HOST.read_answer(7, &HOST.message(7, true).unwrap()), None, "a query");
    for (at, value, what) in [(5, 0, "no question"), (5, 2, "two questions"), (2, 0xa8, "a status")]
    {
        let mut message = valid.clone();
        message[at] = value;
        assert_eq!(HOST.read_answer(7, &message), None, "{what}");
    }
    for length in 0..27 {
        assert_eq!(HOST.read_answer(7, &valid[..length]), None, "{length}");
    }
    for length in 27..valid.len() {
        let answer = HOST.read_answer(7, &valid[..length]);
        assert!(matches!(answer, Some(Answer::Failed(_))), "{length}: {answer:?}");
    }
}

#[test]
fn failures_have_a_reason() {
    for (flags, expected) in [
        (0, "None"),
        (3, "None"),
        (TC, "Truncated"),
        (TC | 2, "Truncated"),
        (1, "NotSupported"),
        (4, "NotSupported"),
        (2, "SERVFAIL"),
        (5, "REFUSED"),
        (9, "RCODE 9"),
    ] {
        let answer = format!("{:?}", HOST.read_answer(7, &response(&HOST, flags, &[])).unwrap());
        assert!(answer.contains(expected), "{flags}: {answer}");
    }
}

#[test]
fn hostile_answers_are_bounded() {
    let own = QUESTION.to_be_bytes();
    let address = vec![192, 0, 2, 1];
    // A reference to itself, to what follows, and two to each other.
    for reference in [[0xc0, 27], [0xc0, 60], [0xff, 0xff]] {
        let message = response(&HOST, 0, &[(&reference, 1, 60, address.clone())]);
        assert!(matches!(HOST.read_answer(7, &message), Some(Answer::Failed(_))), "{reference:?}");
    }
    let loops = [(&b"\x01x\xc0\x1b"[..], 1, 60, address.clone())];
    assert!(matches!(HOST.read_answer(7, &response(&HOST, 0, &loops)), Some(Answer::Failed(_))));
    // A name that is longer than 255 bytes by its references: each alias refers to the one before.
    let mut records = vec![(&own[..], 46, 60, [&[63][..], &[b'x'; 63], &own].concat())];
    let mut at = HOST.message(7, false).unwrap().len() + 12;
    for _ in 0..6 {
        let reference = (0xc000 | at as u16).to_be_bytes();
        records.push((&own, 46, 60, [&[63][..], &[b'x'; 63], &reference].concat()));
        at += 12 + 66;
    }
    let reference = (0xc000 | at as u16).to_be_bytes();
    records.push((&reference, 1, 60, address.clone()));
    let message = response(&HOST, 0, &records);
    assert!(matches!(HOST.read_answer(7, &message), Some(Answer::Failed(_))));
    // A chain of references from one to the one before, up to the name of the question.
    let start = HOST.message(7, false).unwrap().len() + 12;
    for (length, is_valid) in [(15, true), (16, false), (8_000, false)] {
        let at = |number: usize| (0xc000 | (start + 2 * number) as u16).to_be_bytes();
        let chain = (0..length).map(|number: usize| number.checked_sub(1).map_or(own, at));
        let chain: Vec<u8> = chain.flatten().collect();
        let name = at(length - 1);
        let records = [(&own[..], 46, 60, chain), (&name, 1, 60, address.clone())];
        let answer = HOST.read_answer(7, &response(&HOST, 0, &records));
        assert_eq!(matches!(answer, Some(Answer::Records(_))), is_valid, "{length}: {answer:?}");
    }
    // Aliases in a circle, and too many of them.
    let circle = [(&own[..], TYPE_CNAME, 60, wire("a.example"))];
    assert!(matches!(HOST.read_answer(7, &response(&HOST, 0, &circle)), Some(Answer::Failed(_))));
    let names: Vec<_> = (0..20).map(|number| wire(&format!("n{number}.example"))).collect();
    let chain = |length: usize| {
        let mut records = vec![(&own[..], TYPE_CNAME, 60, names[0].clone())];
        for pair in names[..length].windows(2) {
            records.push((&pair[0], TYPE_CNAME, 60, pair[1].clone()));
        }
        records.push((&names[length - 1], 1, 60, address.clone()));
        HOST.read_answer(7, &response(&HOST, 0, &records)).unwrap()
    };
    assert!(matches!(chain(MAX_ALIASES), Answer::Records(_)));
    assert!(matches!(chain(MAX_ALIASES + 1), Answer::Failed(_)));
    // Thousands of addresses.
    let records: Vec<_> = (0..4_000u16)
        .map(|number| (&own[..], 1, 60, [&[10, 0], &number.to_be_bytes()[..]].concat()))
        .collect();
    match HOST.read_answer(7, &response(&HOST, 0, &records)) {
        Some(Answer::Records(found)) => assert_eq!(found.data.len(), MAX_RECORDS),
        answer => panic!("{answer:?}"),
    }
    // Data with a length that the type does not have, and data beyond the end.
    for data in [vec![1, 2, 3], vec![1, 2, 3, 4, 5], vec![]] {
        let message = response(&HOST, 0, &[(&own, 1, 60, data)]);
        assert!(matches!(HOST.read_answer(7, &message), Some(Answer::Failed(_))));
    }
    let mut message = response(&HOST, 0, &[(&own, 46, 60, vec![0; 4])]);
    let at = message.len() - 5;
    message[at] = 200;
    assert!(matches!(HOST.read_answer(7, &message), Some(Answer::Failed(_))));
}

/// Mutated answers neither panic nor exceed the bounds.
#[test]
fn mutated_answers_are_read_within_the_bounds() {
    let own = QUESTION.to_be_bytes();
    let question = Question { name: "_http._tcp.example", kind: RecordType::Srv };
    let service = [&[0, 1, 0, 2, 0, 80][..], &wire("a.example")].concat();
    let records =
        [(&own[..], TYPE_CNAME, 9, wire("b.example")), (&wire("b.example"), 33, 60, service)];
    let valid = response(&question, 0, &records);
    let mut state = 1u64;
    let mut next = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    for _ in 0..20_000 {
        let mut message = valid.clone();
        for _ in 0..=next(4) {
            let at = next(message.len());
            message[at] = [0, 0xc0, 0x0c, 0xff, next(256) as u8][next(5)];
        }
        message.truncate(next(message.len() + 1) + 12);
        if let Some(Answer::Records(found)) = question.read_answer(7, &message) {
            assert!(found.data.len() <= MAX_RECORDS);
        }
    }
}
