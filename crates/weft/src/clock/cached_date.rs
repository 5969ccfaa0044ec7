//! The `Date` field of a worker, formatted once per second.

use std::cell::{Cell, Ref, RefCell};

use http::HeaderValue;

use crate::clock::wall::now;
use weft_proto::http1::compose::HeadPrefix;
use weft_proto::semantics::date::imf_fixdate;

/// The current date in the formats in which it is sent. Each worker has its own.
pub(crate) struct CachedDate {
    second: Cell<u64>,
    head_prefix: RefCell<HeadPrefix>,
}

impl CachedDate {
    /// Creates the cache. `server` is the value of the `Server` field.
    pub(crate) fn new(server: Option<&HeaderValue>) -> CachedDate {
        let date = CachedDate {
            second: Cell::new(u64::MAX),
            head_prefix: RefCell::new(HeadPrefix::new(server)),
        };
        date.refresh();
        date
    }

    /// Reads the clock, and formats the date if the second has changed.
    pub(crate) fn refresh(&self) {
        let now = now();
        if self.second.replace(now) != now {
            let date = imf_fixdate(now);
            self.head_prefix.borrow_mut().set_date(&date);
        }
    }

    /// Seconds since 1970, as of the last refresh.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.second.get()
    }

    /// The date, and the first field lines of an HTTP/1 head.
    #[inline]
    pub(crate) fn head_prefix(&self) -> Ref<'_, HeadPrefix> {
        self.head_prefix.borrow()
    }
}
