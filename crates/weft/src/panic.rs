//! Conversion of application panics into errors, so that they do not terminate the worker.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::error::{Error, ErrorKind, Result};

/// Runs a future of the application. A panic becomes an error of kind `Panicked`.
pub(crate) async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_panic_sync(|| future.as_mut().poll(cx)) {
        Ok(polled) => polled.map(Ok),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// Runs code of the application. A panic becomes an error of kind `Panicked`.
pub(crate) fn catch_panic_sync<T>(code: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        let text = match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast_ref::<&str>().map_or("?", |text| text).to_owned(),
        };
        Error::new(ErrorKind::Panicked, "the application panicked").with_source(with_remedy(text))
    })
}

/// Adds the remedy to the message by which `tokio::task::block_in_place` panics on a worker.
fn with_remedy(message: String) -> String {
    match message.starts_with("can call blocking only when running on the multi-threaded runtime") {
        true => format!(
            "{message}: each worker is a runtime with one thread; use `tokio::task::spawn_blocking` \
             in place of `block_in_place`, or let handlers run on a runtime of yours \
             (`weft::axum::serve`, `weft::tower::on_runtime`)"
        ),
        false => message,
    }
}
