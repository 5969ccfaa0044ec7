//! `Forwarded` and `X-Forwarded-For`: a client that sends any value of its own cannot change the
//! address that a trusted proxy has added.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft::middleware::RealAddress;
use weft::net::IpNetwork;
use weft::{Application, Request, Response, testing};

fuzz_target!(|input: (bool, bool, &[u8])| {
    let (is_standard, same_line, sent) = input;
    // Bytes that a field value cannot have never reach the middleware.
    let mut value = sent.to_vec();
    value.retain(|&byte| byte == b'\t' || (b' '..0x7f).contains(&byte));
    let value = String::from_utf8(value).expect("ASCII");
    let (name, added) = match is_standard {
        true => ("Forwarded", "for=192.0.2.1"),
        false => ("X-Forwarded-For", "192.0.2.1"),
    };
    let fields = match same_line {
        true => format!("{name}: {value}, {added}, "),
        false => format!("{name}: {value}\r\n{name}: {added}, "),
    };
    // A second trusted proxy has added the first one.
    let inner = if is_standard { "for=10.0.0.1" } else { "10.0.0.1" };
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}{inner}\r\n\r\n");
    assert_eq!(client(is_standard, request), "192.0.2.1:0", "{fields:?}");
});

/// Returns the address of the client as an application gets it.
fn client(is_standard: bool, request: String) -> String {
    let proxies: [IpNetwork; 1] = ["10.0.0.0/8".parse().expect("a network")];
    let real_address = match is_standard {
        true => RealAddress::forwarded(proxies),
        false => RealAddress::x_forwarded_for(proxies),
    };
    let app = async |request: Request| {
        let address = request.peer().address();
        Response::text(address.map_or("none".to_owned(), |address| address.to_string()))
    };
    let response = testing::call(app.wrap(real_address), testing::request(request));
    String::from_utf8(response.body.to_vec()).expect("ASCII")
}
