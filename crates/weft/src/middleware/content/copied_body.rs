//! A compressed body of which a copy is kept.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::disk::NewCopy;
use crate::error::{Error, Result};
use crate::message::body::Body;

/// A body that is copied while it is sent. A body that is not sent to its end has no copy.
pub(super) struct CopiedBody {
    body: Body,
    copy: Option<NewCopy>,
}

impl CopiedBody {
    pub(super) fn new(body: Body, copy: NewCopy) -> CopiedBody {
        CopiedBody { body, copy: Some(copy) }
    }
}

impl http_body::Body for CopiedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(copy), Some(piece)) = (&mut self.copy, frame.data_ref()) {
                    copy.push(piece);
                }
            }
            Some(Err(_)) => self.copy = None,
            None => {
                if let Some(copy) = self.copy.take() {
                    copy.finish();
                }
            }
        }
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
