//! One peer that comes and goes in an existing cluster.

use std::time::SystemTime;

use anyhow::Result;

use super::{
    announce::{Announcements, Sight},
    peers::NumberedPeer,
    report::median,
    store::Store,
};

/// Medians over all changes of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changes {
    /// Milliseconds from the write to the store to the route.
    pub(super) join: f64,
    /// Milliseconds from the deletion in the store to that of the route.
    pub(super) leave: f64,
    /// Announcements of the kernel for one join.
    pub(super) events_per_join: f64,
    /// Announcements of the kernel for one leave.
    pub(super) events_per_leave: f64,
}

/// Lets `peer` come and go `times` times.
pub(super) fn changes(
    store: &Store,
    heard: &mut Announcements,
    peer: NumberedPeer,
    times: u32,
) -> Result<Changes> {
    let (mut joins, mut leaves) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let before = heard.count;
        let start = store.put(peer)?;
        joins.push((
            milliseconds(start, heard.until(Sight::Route, 1)?)?,
            heard.count - before,
        ));
        let before = heard.count;
        let start = store.delete(peer)?;
        let gone = milliseconds(start, heard.until(Sight::RouteGone, 1)?)?;
        heard.until(Sight::NeighbourGone, 1)?;
        leaves.push((gone, heard.count - before));
    }
    #[expect(clippy::cast_precision_loss, reason = "a few events")]
    let events = |of: &[(f64, u64)]| median(of.iter().map(|(_, events)| *events as f64));
    let times = |of: &[(f64, u64)]| median(of.iter().map(|(time, _)| *time));
    Ok(Changes {
        join: times(&joins),
        leave: times(&leaves),
        events_per_join: events(&joins),
        events_per_leave: events(&leaves),
    })
}

fn milliseconds(start: SystemTime, end: SystemTime) -> Result<f64> {
    Ok(end.duration_since(start)?.as_secs_f64() * 1e3)
}
