//! The body of a request on its way to an upstream, and what is known of its progress.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use weft::Error;

/// What hyper sends behind the head of a request.
pub(super) enum RequestBody {
    Empty,
    Streamed(weft::Body, Arc<Upload>),
}

/// How far the body is. It is pulled by the task of the connection to the upstream and watched
/// by that of the request; both are in one thread, mostly.
#[derive(Default)]
pub(super) struct Upload(Mutex<State>);

#[derive(Default)]
struct State {
    stage: Stage,
    /// How many frames were taken from the client.
    moved: u64,
    /// Who pulls, while it is held.
    puller: Option<Waker>,
}

#[derive(Default)]
enum Stage {
    /// The upstream has not said whether it wants it (RFC 9110 §10.1.1).
    Held,
    /// The upstream's turn: it takes what there is.
    #[default]
    Sending,
    /// The client's turn.
    Awaited,
    /// Nobody wants the rest.
    Stopped,
    Done,
    /// Through the client's fault.
    Failed(Option<Error>),
}

/// Whose turn it is while a response is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Client,
    /// The upstream's, after so many frames.
    Upstream(u64),
}

impl Upload {
    /// A body that waits until it is [released](Upload::release).
    pub(super) fn held() -> Upload {
        Upload(Mutex::new(State { stage: Stage::Held, ..State::default() }))
    }

    /// The upstream wants it, or does not say.
    pub(super) fn release(&self) {
        let mut state = self.state();
        if let Stage::Held = state.stage {
            state.stage = Stage::Sending;
            let puller = state.puller.take();
            drop(state);
            if let Some(puller) = puller {
                puller.wake();
            }
        }
    }

    /// No more of it is wanted.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        if !matches!(state.stage, Stage::Done | Stage::Failed(_)) {
            state.stage = Stage::Stopped;
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state().stage, Stage::Done)
    }

    pub(super) fn turn(&self) -> Turn {
        let state = self.state();
        match state.stage {
            Stage::Awaited => Turn::Client,
            _ => Turn::Upstream(state.moved),
        }
    }

    /// Why the client's body cannot be passed on, if that is so; it is told once.
    pub(super) fn take_error(&self) -> Option<Error> {
        match &mut self.state().stage {
            Stage::Failed(error) => error.take(),
            _ => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let RequestBody::Streamed(body, upload) = self.get_mut() else { return Poll::Ready(None) };
        {
            let mut state = upload.state();
            match state.stage {
                Stage::Held => {
                    state.puller = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                // The connection ends with the response.
                Stage::Stopped => return Poll::Pending,
                Stage::Sending | Stage::Awaited => state.stage = Stage::Awaited,
                Stage::Done | Stage::Failed(_) => return Poll::Ready(None),
            }
        }
        let next = ready!(Pin::new(&mut *body).poll_frame(cx));
        let mut state = upload.state();
        state.moved += 1;
        Poll::Ready(match next {
            Some(Ok(frame)) => {
                let is_last = frame.is_trailers() || body.is_end_stream();
                state.stage = if is_last { Stage::Done } else { Stage::Sending };
                Some(Ok(frame))
            }
            None => {
                state.stage = Stage::Done;
                None
            }
            Some(Err(error)) => {
                state.stage = Stage::Failed(Some(error));
                Some(Err("the client's body failed"))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Empty => true,
            RequestBody::Streamed(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Empty => SizeHint::with_exact(0),
            RequestBody::Streamed(body, _) => body.size_hint(),
        }
    }
}
