//! The events of all nodes, printed in the order of their arrival.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use flannel_document::{self as document, Document};
use flannel_node_commands::{flows::FlowEventRow, top::print::is_read};
use flannel_terminal::wrap;
use serde::Serialize;
use tokio::sync::mpsc::Receiver;

/// An event of a flow, with the node that reports it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ClusterFlowEvent {
    /// The name of the node that reports the event.
    pub(super) node: String,
    /// The event, as this node has it.
    #[serde(flatten)]
    pub(super) event: FlowEventRow,
}

impl Document for ClusterFlowEvent {
    const NAME: &'static str = "cluster-flow-event";
}

/// The form of the output.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventForm {
    pub(super) is_json: bool,
    /// The width of the column of nodes.
    pub(super) width: usize,
    /// The number of events after which the output ends.
    pub(super) count: Option<u64>,
}

impl EventForm {
    pub(super) fn line(self, event: &ClusterFlowEvent) -> String {
        if self.is_json {
            return document::line(event) + "\n";
        }
        let ClusterFlowEvent { node, event } = event;
        wrap::to_terminal(format!(
            "{node:<width$}  {}",
            event.text(),
            width = self.width
        ))
    }
}

/// Prints events until enough are shown, the reader is gone, or no more can come. It waits for a
/// slow reader, so it has a thread.
pub(super) fn print(
    mut events: Receiver<ClusterFlowEvent>,
    form: EventForm,
    shown: &Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let is_enough = |shown: u64| form.count.is_some_and(|count| shown >= count);
    while !is_enough(shown.load(Ordering::Relaxed)) {
        let Some(event) = events.blocking_recv() else {
            return Ok(());
        };
        if !is_read(&form.line(&event))? {
            return Ok(());
        }
        shown.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
