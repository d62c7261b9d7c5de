//! The turn of tunnels, which planes may share, after that of their planes.

use std::collections::BTreeSet;

use crate::{plane::Plane, tunnel::Tunnels};

impl Tunnels {
    /// Changes the tunnels whose planes have all processed their peers. A plane in error does not
    /// delay its tunnel: its last desired state counts.
    pub(crate) async fn apply(&mut self, planes: &[Plane], in_sync: bool) {
        let Some(peers) = &mut self.0 else {
            return;
        };
        let names: BTreeSet<String> = planes
            .iter()
            .map(|plane| plane.device_name().to_owned())
            .collect();
        for name in names {
            let users = || planes.iter().filter(|plane| plane.device_name() == name);
            if users().all(|plane| plane.is_complete() || plane.error().is_some()) {
                let sweep = in_sync && users().all(Plane::is_complete);
                peers.apply(&name, sweep).await;
            }
        }
    }
}
