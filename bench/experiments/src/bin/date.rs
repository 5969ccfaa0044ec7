//! The `Date` of a response: formatted each time by a library for all formats, by a function
//! for this one, or once a second and then copied.
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
            ("by a function for this format", &|| {
                black_box(http_date(SystemTime::now()));
            }),
            ("formatted once a second, the time asked for each time", &|| {
                cached.refresh();
                black_box(cached.line());
            }),
            ("formatted once a second, by a sweeper that asks for the time", &|| {
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
