//! A scenario: rules on two nodes and flows between their pods, as data. No I/O.

mod flow;
mod place;
mod rule;

use std::collections::BTreeSet;

pub use self::{
    flow::{CLIENT_PORTS, Direction, Ending, Flow, Kind, Varying, Via, client_port},
    place::{Place, Side},
    rule::{Action, Compare, Hook, Match, Rule, Scope, State, Table, Tool},
};

/// The phases of a run, in packets of each flow and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// Equal packets, from which flows are learned.
    pub warm_up: u32,
    /// Packets with varying fields.
    pub varying: u32,
    /// Varying packets that follow a silence longer than the refresh interval.
    pub after_silence: Option<u32>,
}

/// The nodes' devices, beyond rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Filters of others on the cables, which mirror what comes in.
    pub filters: bool,
    /// Cables that take no large segments, as a wire does not.
    pub wire: bool,
}

/// Rules and traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The number it was made from.
    pub seed: u64,
    /// The rules, in order of evaluation.
    pub rules: Vec<Rule>,
    /// The flows.
    pub flows: Vec<Flow>,
    /// The phases.
    pub phases: Phases,
    /// The nodes' devices.
    pub surroundings: Surroundings,
}

impl Scenario {
    /// The flow with this number.
    pub fn flow(&self, id: u16) -> Option<&Flow> {
        self.flows.iter().find(|flow| flow.id == id)
    }

    /// True if a rule judges packets of this flow one by one, in either direction or on the tunnel.
    pub fn is_judged_per_packet(&self, flow: &Flow) -> bool {
        let sees = |rule: &&Rule| {
            Direction::ALL
                .iter()
                .any(|direction| rule.may_see(flow, *direction))
        };
        self.rules.iter().filter(sees).any(Rule::is_per_packet)
    }

    /// With the rules of missing tools written by nft. A helper is assigned behind conntrack there.
    #[must_use]
    pub fn with_tools(mut self, available: &BTreeSet<Tool>) -> Self {
        for rule in self
            .rules
            .iter_mut()
            .filter(|rule| !available.contains(&rule.tool))
        {
            rule.tool = Tool::Nft;
            // nft of this kernel may have no queue.
            if rule.action == Action::Queue {
                rule.action = Action::Count;
            }
            if rule.action == Action::AssignHelper {
                rule.table = Table::Mangle;
            }
        }
        self
    }

    /// Without rules about flows that are not there any more.
    #[must_use]
    pub fn pruned(mut self) -> Self {
        let ids: BTreeSet<u16> = self.flows.iter().map(|flow| flow.id).collect();
        for rule in &mut self.rules {
            if let Scope::Flows(of, _) = &mut rule.scope {
                of.retain(|id| ids.contains(id));
            }
        }
        self.rules
            .retain(|rule| !matches!(&rule.scope, Scope::Flows(of, _) if of.is_empty()));
        self
    }

    /// The nodes on which a program in userspace is asked about packets.
    pub fn queues(&self) -> BTreeSet<Side> {
        self.rules
            .iter()
            .filter(|rule| rule.action == Action::Queue)
            .map(|rule| rule.side)
            .collect()
    }
}
