//! The `Date` of a response: formatted for each response by a general library or by a specialized
//! function, or once per second and then copied.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml -p weft-experiments --bin date`

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::Utc;
use weft::date::http_date;
use weft_experiments::compare;

fn main() {
    let cached = Cached { second: Cell::new(0), date: RefCell::default() };
    compare(
        "the date",
        &[
            ("formatted from a pattern", &|| {
                black_box(Utc::now().format("%a, %d %b %Y %H:%M:%S GMT").to_string());
            }),
            ("formatted by a specialized function", &|| {
                black_box(http_date(SystemTime::now()));
            }),
            ("formatted once per second, clock read for each response", &|| {
                cached.refresh();
                black_box(cached.line());
            }),
            ("formatted once per second, clock read by a sweeper", &|| {
                black_box(cached.line());
            }),
        ],
    );
}

struct Cached {
    second: Cell<u64>,
    date: RefCell<[u8; 29]>,
}

impl Cached {
    fn refresh(&self) {
        let time = SystemTime::now();
        let second = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.second.replace(second) != second {
            self.date.borrow_mut().copy_from_slice(http_date(time).as_bytes());
        }
    }

    fn line(&self) -> [u8; 29] {
        *self.date.borrow()
    }
}
