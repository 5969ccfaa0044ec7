//! The exchange of messages with the other processes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::bus::{Bus, BusEvent, Publisher};
use crate::cluster_status::StatusCell;
use crate::message_frame::{Frame, MessageFrame};

/// Delay after the first failure of a call, which doubles each time.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// An event about the messages of other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// Content of a message.
    Message(Vec<u8>),
    /// Messages were lost.
    Gap,
}

/// Function that handles events, on a thread on which it may take its time.
pub type EventHandler = dyn Fn(ClusterEvent) + Send + Sync;

/// A message to publish, and the channel by which its success is reported.
pub(crate) type Outgoing = (Vec<u8>, oneshot::Sender<()>);

/// Receives messages until the task is dropped.
pub(crate) async fn receive(
    mut bus: impl Bus,
    frame: Arc<MessageFrame>,
    handler: Arc<EventHandler>,
    status: Arc<StatusCell>,
) {
    let mut delay = MIN_RETRY_DELAY;
    loop {
        match bus.receive().await {
            Ok(events) => {
                delay = MIN_RETRY_DELAY;
                let events: Vec<_> =
                    events.into_iter().filter_map(|event| read(event, &frame, &status)).collect();
                let handler = handler.clone();
                let handled = spawn_blocking(move || events.into_iter().for_each(&*handler));
                if handled.await.is_err() {
                    log::error!("a message of the cluster was lost by a defect");
                }
            }
            Err(error) => {
                if delay == MIN_RETRY_DELAY {
                    log::debug!("no messages of the cluster are received: {error}");
                }
                sleep(delay).await;
                delay = (delay * 2).min(MAX_RETRY_DELAY);
            }
        }
    }
}

fn read(event: BusEvent, frame: &MessageFrame, status: &StatusCell) -> Option<ClusterEvent> {
    let message = match event {
        BusEvent::Message(message) => message,
        BusEvent::Gap => {
            status.gaps.fetch_add(1, Relaxed);
            log::warn!("messages of the cluster were lost while its store was away");
            return Some(ClusterEvent::Gap);
        }
    };
    match frame.read(&message) {
        Frame::Other(content) => {
            status.received.fetch_add(1, Relaxed);
            Some(ClusterEvent::Message(content.to_vec()))
        }
        Frame::Own => None,
        Frame::Forged => {
            status.forged.fetch_add(1, Relaxed);
            None
        }
    }
}

/// Publishes messages until their sender is dropped. Each is repeated until the store accepts it.
pub(crate) async fn publish(
    mut publisher: impl Publisher,
    mut queue: mpsc::Receiver<Outgoing>,
    status: Arc<StatusCell>,
) {
    while let Some((message, done)) = queue.recv().await {
        let mut delay = MIN_RETRY_DELAY;
        while let Err(error) = publisher.publish(&message).await {
            if delay == MIN_RETRY_DELAY {
                log::warn!("a message to the cluster waits for its store: {error}");
            }
            sleep(delay).await;
            delay = (delay * 2).min(MAX_RETRY_DELAY);
        }
        status.published.fetch_add(1, Relaxed);
        // The sender may not wait any more.
        let _ = done.send(());
    }
}
