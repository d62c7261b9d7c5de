//! The way to the receiver of events.

use tokio::sync::mpsc;

use crate::StoreEvent;

/// The receiver of events is gone.
pub(crate) struct Gone;

/// Sends events, in order.
pub(crate) struct EventSender(mpsc::Sender<StoreEvent>);

impl EventSender {
    pub(super) fn new(events: mpsc::Sender<StoreEvent>) -> Self {
        Self(events)
    }

    /// Waits until the receiver is gone.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }

    pub(crate) async fn send(&self, event: StoreEvent) -> Result<(), Gone> {
        self.0.send(event).await.map_err(|_closed| Gone)
    }

    pub(crate) async fn send_all(&self, events: Vec<StoreEvent>) -> Result<(), Gone> {
        for event in events {
            self.send(event).await?;
        }
        Ok(())
    }
}
