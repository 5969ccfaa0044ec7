//! The body of a response of a service that runs on another runtime.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Frame, SizeHint};
use tokio::runtime::Handle;

/// The body of a response, polled by the worker in the context of the runtime, which then runs its
/// timers and tasks.
#[derive(Debug)]
pub struct RuntimeBody<B> {
    pub(super) body: B,
    pub(super) runtime: Handle,
}

impl<B: http_body::Body + Unpin> http_body::Body for RuntimeBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let RuntimeBody { body, runtime } = self.get_mut();
        let _context = runtime.enter();
        Pin::new(body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
