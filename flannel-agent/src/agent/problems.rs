//! The problems of this node that the store publishes for those who watch the whole cluster.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use flannel_iface::AddressInPods;
use flannel_store::{NodeProblem, NodeReport};

use super::{external, main_loop::Agent};

/// Silent peers that are reported one by one.
const NAMED_PEERS: usize = 5;
/// A mode that is lowered for a shorter time, such as during the agent's start, is not reported.
const LASTING: Duration = Duration::from_mins(1);

/// The time since which the mode is lower than asked for.
#[derive(Debug, Default)]
pub(super) struct LoweredMode(Option<Instant>);

impl LoweredMode {
    /// Takes in the reason why it is lowered now, if it is. Returns it if that has lasted.
    fn lasting(&mut self, reason: Option<String>, now: Instant) -> Option<String> {
        self.0 = reason.is_some().then(|| self.0.unwrap_or(now));
        reason.filter(|_| self.0.is_some_and(|since| now.duration_since(since) >= LASTING))
    }
}

impl Agent {
    /// The addresses of the external interface that lie in a pod network.
    pub(super) fn addresses_in_pods(&self) -> Vec<AddressInPods> {
        external::addresses_in_pods(self.node.external.chosen(), &self.node.settings.config)
    }

    /// Reports the problems there are now. To be called every second.
    pub(super) fn report_problems(&mut self, now: Instant) {
        let reason = self.mode_reason();
        let lowered = self.lowered_mode.lasting(reason, now).map(|reason| NodeReport {
            problem: NodeProblem::ModeLowered,
            message: format!(
                "the datapath mode is {}, not {}: {reason}. Packets take a slower path; none is lost",
                self.decision.mode, self.decision.wanted
            ),
        });
        let refused = self.node.settings.node.refusals();
        let refused = refused.map(|message| NodeReport { problem: NodeProblem::SettingRefused, message });
        let inside = self.addresses_in_pods().into_iter().map(|found| NodeReport {
            problem: NodeProblem::AddressInPods,
            message: format!("{found}; {}", AddressInPods::REMEDY),
        });
        let conflicts = NodeReport::conflicts(&self.node.leases);
        let silent = silent_peers(&self.node.echoes.silent_names());
        self.node.store.reports.set(conflicts.chain(lowered).chain(refused).chain(inside).chain(silent));
    }
}

/// A report about each peer that has fallen silent. Of many there is one, which does not change
/// with their number.
fn silent_peers(names: &BTreeSet<String>) -> Vec<NodeReport> {
    let report = |message| NodeReport { problem: NodeProblem::PeerSilent, message };
    if names.len() > NAMED_PEERS {
        return vec![report(format!(
            "more than {NAMED_PEERS} peers that answered echo requests do not any more: see `flannel-agent status`"
        ))];
    }
    let message = |name: &String| {
        format!(
            "the peer {name} answered echo requests and does not any more: run `flannel-agent explain` on both nodes"
        )
    };
    names.iter().map(|name| report(message(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_silent_peers_are_one_report_that_stays_the_same() {
        let names = |number: u32| (0..number).map(|number| format!("n{number}")).collect();
        assert_eq!(silent_peers(&names(0)), []);
        assert_eq!(silent_peers(&names(5)).len(), 5);
        assert_eq!(silent_peers(&names(6)).len(), 1);
        assert_eq!(silent_peers(&names(6)), silent_peers(&names(60)));
    }

    #[test]
    fn a_lowered_mode_is_a_problem_once_it_lasts() {
        let (mut mode, start) = (LoweredMode::default(), Instant::now());
        let why = || Some("no BPF".to_owned());
        assert_eq!(mode.lasting(why(), start), None);
        assert_eq!(mode.lasting(why(), start + LASTING / 2), None);
        assert_eq!(mode.lasting(why(), start + LASTING), why());
        assert_eq!(mode.lasting(None, start + LASTING), None);
        assert_eq!(mode.lasting(why(), start + 2 * LASTING), None, "it was well in between");
        assert_eq!(mode.lasting(why(), start + 3 * LASTING), why());
    }
}
