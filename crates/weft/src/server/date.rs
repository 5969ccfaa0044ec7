//! The `Date` field of a worker, formatted once a second.

use std::cell::{Cell, Ref, RefCell};

use http::HeaderValue;

use crate::clock::wall::now;
use weft_proto::http1::compose::HeadPrefix;
use weft_proto::semantics::date::imf_fixdate;

/// The date, as each worker keeps it in the forms in which it is sent.
pub(crate) struct CachedDate {
    second: Cell<u64>,
    head_prefix: RefCell<HeadPrefix>,
}

impl CachedDate {
    /// For a server of this name.
    pub(crate) fn new(server: Option<&HeaderValue>) -> CachedDate {
        let date = CachedDate {
            second: Cell::new(u64::MAX),
            head_prefix: RefCell::new(HeadPrefix::new(server)),
        };
        date.refresh();
        date
    }

    /// Asks for the time, and formats it if a new second has begun.
    pub(crate) fn refresh(&self) {
        let now = now();
        if self.second.replace(now) != now {
            let date = imf_fixdate(now);
            self.head_prefix.borrow_mut().set_date(&date);
        }
    }

    /// Seconds since 1970, as of the last refresh.
    pub(crate) fn now(&self) -> u64 {
        self.second.get()
    }

    /// The date, and the lines that a head of HTTP/1 begins with.
    pub(crate) fn head_prefix(&self) -> Ref<'_, HeadPrefix> {
        self.head_prefix.borrow()
    }
}
