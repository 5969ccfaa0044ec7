//! The listing of a folder, and its forms. Pure, except for `folder.rs`.

mod entries; // the entries of a folder
mod folder; // reads the entries of a folder
mod order; // sort order of the entries

mod human; // human-readable sizes and counts
mod json; // the listing as JSON
mod page; // the listing as HTML

use weft_proto::headers::Headers;
use weft_proto::semantics::accept;

pub(super) use self::entries::Listing;
pub(super) use self::folder::{Folder, list_embedded};
pub(super) use self::order::Order;
pub(super) use self::page::PAGE_CSP;

/// Returns true if a client prefers JSON to HTML. `Accept` has to name `application/json`:
/// browsers name `text/html`, and a client that accepts `*/*` gets HTML.
pub(crate) fn prefers_json(headers: &Headers) -> bool {
    accept::prefers(headers, "application/json", "text/html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_json_by_accept() {
        for (accept, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json, text/plain, */*", true),
            ("text/html;q=0.5, application/json;q=0.9", true),
            ("application/json;version=1;Q=0.2", true),
            ("text/html;q=0, application/json;q=0.001", true),
            ("application/json, text/html", false),
            ("application/json;q=0.5, text/html;q=0.9", false),
            ("application/json;q=0", false),
            ("application/json;q=2", false),
            ("application/json;q=nan", false),
            ("application/jsonp", false),
            ("application/*", false),
            ("*/*", false),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
            ("", false),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
            let request = crate::testing::request(head);
            assert_eq!(prefers_json(request.headers()), expected, "{accept}");
        }
        let request = crate::testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(!prefers_json(request.headers()));
    }
}
