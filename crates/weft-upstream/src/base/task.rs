//! Tasks with an owner, and work that outlives its owner.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

/// Handle of a task that is aborted when the handle is dropped.
pub struct AbortOnDrop(JoinHandle<()>);

impl AbortOnDrop {
    /// Starts a task.
    pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        AbortOnDrop(tokio::spawn(work))
    }

    /// Waits for the task to complete; aborts it after `limit`.
    pub async fn join_within(mut self, limit: Duration) {
        let _completed_or_not = timeout(limit, &mut self.0).await;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Flag that its work sets when it may be dropped.
#[derive(Clone, Debug, Default)]
pub struct MayDrop(Rc<Cell<bool>>);

impl MayDrop {
    /// Permits that the work is dropped.
    pub fn set(&self) {
        self.0.set(true);
    }
}

/// Future that continues in a task of its own if it is dropped too early. The task ends when the
/// work permits that it is dropped.
pub struct UntilMayDrop<T: 'static> {
    /// `None` while it is polled, so that a panic drops it, and after its end.
    work: Option<LocalBoxFuture<'static, T>>,
    may_drop: MayDrop,
}

impl<T: 'static> UntilMayDrop<T> {
    /// Creates the future of `work`, which may be dropped once `may_drop` is set.
    pub fn new(work: LocalBoxFuture<'static, T>, may_drop: MayDrop) -> UntilMayDrop<T> {
        UntilMayDrop { work: Some(work), may_drop }
    }
}

impl<T: 'static> Future for UntilMayDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut work = self.work.take().expect("not polled after its end");
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: 'static> Drop for UntilMayDrop<T> {
    fn drop(&mut self) {
        let Some(mut work) = self.work.take() else { return };
        let may_drop = self.may_drop.0.clone();
        // Without a runtime, the worker has ended.
        if may_drop.get() || Handle::try_current().is_err() {
            return;
        }
        spawn_local(poll_fn(move |cx| match work.as_mut().poll(cx) {
            Poll::Pending if !may_drop.get() => Poll::Pending,
            Poll::Pending | Poll::Ready(_) => Poll::Ready(()),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::pending;

    use futures_util::FutureExt;
    use tokio::task::{LocalSet, yield_now};

    /// Polls work once, drops it, and returns how far it has got: it sets the steps, and permits
    /// its drop after the first one if `drops_early` is set.
    async fn steps_after_drop(drops_early: bool) -> u32 {
        let (steps, may_drop) = (Rc::new(Cell::new(0)), MayDrop::default());
        let work = {
            let (steps, may_drop) = (steps.clone(), may_drop.clone());
            async move {
                steps.set(1);
                if drops_early {
                    may_drop.set();
                }
                yield_now().await;
                steps.set(2);
                may_drop.set();
                yield_now().await;
                steps.set(3);
            }
        };
        let mut future = UntilMayDrop::new(work.boxed_local(), may_drop);
        assert!((&mut future).now_or_never().is_none());
        drop(future);
        for _ in 0..10 {
            yield_now().await;
        }
        // The task holds the other reference as long as it runs.
        assert_eq!(Rc::strong_count(&steps), 1);
        steps.get()
    }

    #[tokio::test]
    async fn dropped_work_continues_until_it_may_be_dropped() {
        LocalSet::new()
            .run_until(async {
                assert_eq!(steps_after_drop(true).await, 1);
                assert_eq!(steps_after_drop(false).await, 2);
            })
            .await;
    }

    #[test]
    fn drop_without_a_runtime_drops_the_work() {
        let shared = Rc::new(());
        let work = {
            let shared = shared.clone();
            async move {
                pending::<()>().await;
                drop(shared);
            }
        };
        drop(UntilMayDrop::new(work.boxed_local(), MayDrop::default()));
        assert_eq!(Rc::strong_count(&shared), 1);
    }
}
