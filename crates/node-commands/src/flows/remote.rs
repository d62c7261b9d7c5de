//! The lines of `flows list --follow --remote`, which `cluster flows --follow` runs on each node:
//! events, and heartbeats between them.
//!
//! The reader of the lines finds a node that is gone by their absence. The command ends with its
//! standard input, which container runtimes close when the connection of its reader is lost; a
//! signal does not reach it. Where they do not, it ends when a heartbeat cannot be written, or
//! after [`LIFE`].

use std::{io, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{select, task::spawn_blocking, time::sleep};

use super::rows::FlowEventRow;

/// Between two heartbeats.
pub const PERIOD: Duration = Duration::from_secs(5);
/// The reader starts the command again after it.
const LIFE: Duration = Duration::from_hours(1);

/// A line of the command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RemoteLine {
    /// The node goes on.
    Heartbeat {
        /// The state.
        heartbeat: Heartbeat,
    },
    /// An event.
    Event(Box<FlowEventRow>),
}

/// The state of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Packets without an event since it began: they came faster than `--rate`, or found the buffer
    /// full.
    pub missed: u64,
    /// The packets that are not shown, with the reason.
    pub problem: Option<String>,
}

impl RemoteLine {
    /// A heartbeat on a line.
    pub(super) fn heartbeat(missed: u64, problem: Option<String>) -> String {
        let line = Self::Heartbeat {
            heartbeat: Heartbeat { missed, problem },
        };
        serde_json::to_string(&line).expect("objects with string keys") + "\n"
    }
}

/// Waits for the end of standard input, or of the command's life.
pub(super) async fn end() {
    select! {
        _ = spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())) => {}
        () = sleep(LIFE) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_not_an_event() {
        let line = RemoteLine::heartbeat(3, None);
        let read = serde_json::from_str(&line).expect("a line");
        assert!(
            matches!(
                read,
                RemoteLine::Heartbeat {
                    heartbeat: Heartbeat {
                        missed: 3,
                        problem: None
                    }
                }
            ),
            "{line}"
        );
        assert!(serde_json::from_str::<RemoteLine>("{}").is_err());
    }
}
