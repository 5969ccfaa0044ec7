use std::future::poll_fn;
use std::task::Poll;

use shuttle::future::block_on;
use shuttle::thread;

use crate::loan::{BodyEvent, Loan};
use crate::stand_ins::coin;

/// The connection gets the reader exactly once, and at most one request for a 100 response before
/// it.
pub fn returns_the_reader_once() {
    let loan = Loan::new();
    let body = thread::spawn({
        let loan = loan.clone();
        move || {
            if coin() {
                loan.request_continue();
            }
            loan.give_back("reader");
        }
    });
    let mut continues = 0;
    loop {
        match block_on(poll_fn(|cx| loan.poll_event(cx))) {
            BodyEvent::WantsContinue => continues += 1,
            BodyEvent::ReaderReturned(reader) => break assert_eq!(reader, "reader"),
        }
    }
    assert!(continues <= 1);
    body.join().unwrap();
    assert!(loan.take_returned().is_none());
    assert!(block_on(poll_fn(|cx| Poll::Ready(loan.poll_event(cx).is_pending()))));
}

/// A body that waits for data is woken when its connection ends, also if another thread polls it
/// for the second time.
pub fn revocation_wakes_the_body() {
    let loan = Loan::<()>::new();
    let body = thread::spawn({
        let loan = loan.clone();
        move || {
            let first_poll = poll_fn(|cx| Poll::Ready(loan.poll_revoked(cx).is_ready()));
            if coin() && block_on(first_poll) {
                return;
            }
            let moved = thread::spawn(move || {
                block_on(poll_fn(|cx| loan.poll_revoked(cx)));
                assert!(loan.is_revoked());
            });
            moved.join().unwrap();
        }
    });
    let is_pending = poll_fn(|cx| Poll::Ready(loan.poll_event(cx).is_pending()));
    assert!(block_on(is_pending));
    loan.revoke();
    body.join().unwrap();
}
