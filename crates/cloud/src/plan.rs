//! The routes that a table of the cloud lacks or should not have. Pure.
//!
//! The table is the whole cluster's, and other nodes change it at the same time. So this node makes
//! only the route to its own subnet, and removes only what carries no pod's packets: a blackhole or
//! a route to itself, inside the pod network, that overlaps no lease of another node.

use std::{collections::BTreeSet, fmt};

use ipnet::Ipv4Net;

/// Removals from one table at a time: requests to change it are rationed for the whole account.
const REMOVALS: usize = 20;

/// The facts about the leases on which routes depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leases {
    /// The pod network.
    pub(super) network: Ipv4Net,
    /// The subnet of this node.
    pub(super) own: Ipv4Net,
    /// The subnets of the other nodes.
    pub(super) others: BTreeSet<Ipv4Net>,
    /// True once the store has shown all leases. No route is removed before.
    pub(super) in_sync: bool,
}

/// A route table of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Its identifier.
    pub(super) id: String,
    /// Its IPv4 routes.
    pub(super) routes: Vec<TableRoute>,
}

impl Table {
    /// Returns true if its static route to a destination leads to this node.
    pub(super) fn leads(&self, destination: Ipv4Net) -> bool {
        self.routes.iter().any(|route| {
            route.is_static && route.destination == destination && route.target == RouteTarget::Own
        })
    }
}

/// A route in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableRoute {
    pub(super) destination: Ipv4Net,
    pub(super) target: RouteTarget,
    /// True if its target is gone or stopped: its packets are dropped.
    pub(super) is_blackhole: bool,
    /// True if it was made by request, as nodes do. Those of the cloud itself, and those that a VPN
    /// announces, cannot be changed.
    pub(super) is_static: bool,
}

/// The receiver of a route's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RouteTarget {
    /// This node.
    Own,
    /// Another one, by its identifier.
    Other(String),
}

impl fmt::Display for RouteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("this node"),
            Self::Other(id) => f.write_str(id),
        }
    }
}

/// One change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteStep {
    /// The table.
    pub(super) table: String,
    /// The destination of the route.
    pub(super) destination: Ipv4Net,
    pub(super) change: RouteChange,
}

impl RouteStep {
    /// Returns true unless the route of this node is made.
    pub(super) const fn is_removal(&self) -> bool {
        matches!(self.change, RouteChange::Delete { .. })
    }
}

/// The kinds of change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RouteChange {
    /// A new route to this node, in a table with this number of routes.
    Create { routes: usize },
    /// A route that led elsewhere leads to this node.
    Replace { before: RouteTarget },
    /// The route goes.
    Delete { reason: Removal },
}

/// The reason why a route goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// It drops packets.
    Blackhole,
    /// It leads a subnet to this node that is not this node's.
    Twin,
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blackhole => "a blackhole",
            Self::Twin => "a route to this node for a subnet without a lease",
        })
    }
}

/// Returns the changes of all tables. Removals come first: they make room.
pub(super) fn plan(leases: &Leases, tables: &[Table]) -> Vec<RouteStep> {
    tables
        .iter()
        .flat_map(|table| removals(leases, table).chain(own(leases, table)))
        .collect()
}

fn own(leases: &Leases, table: &Table) -> Option<RouteStep> {
    let is_found = |route: &&TableRoute| route.is_static && route.destination == leases.own;
    let is_good = |route: &TableRoute| route.target == RouteTarget::Own && !route.is_blackhole;
    let found: Vec<&TableRoute> = table.routes.iter().filter(is_found).collect();
    // Some clouds spread packets over several routes to one destination.
    let change = match (found.iter().find(|route| !is_good(route)), found.is_empty()) {
        (None, true) => RouteChange::Create {
            routes: table.routes.len(),
        },
        (None, false) => return None,
        (Some(route), _) => RouteChange::Replace {
            before: route.target.clone(),
        },
    };
    Some(RouteStep {
        table: table.id.clone(),
        destination: leases.own,
        change,
    })
}

fn removals(leases: &Leases, table: &Table) -> impl Iterator<Item = RouteStep> {
    let removable = |route: &&TableRoute| {
        leases.in_sync && route.is_static && is_unleased(leases, route.destination)
    };
    let step = |route: &TableRoute| {
        let reason = match route {
            TableRoute {
                is_blackhole: true, ..
            } => Removal::Blackhole,
            TableRoute {
                target: RouteTarget::Own,
                ..
            } => Removal::Twin,
            TableRoute {
                target: RouteTarget::Other(_),
                ..
            } => return None,
        };
        let change = RouteChange::Delete { reason };
        Some(RouteStep {
            table: table.id.clone(),
            destination: route.destination,
            change,
        })
    };
    table
        .routes
        .iter()
        .filter(removable)
        .filter_map(step)
        .take(REMOVALS)
}

/// True for a prefix inside the pod network, and not all of it, that is neither our subnet nor
/// touches that of another node. That one's agent keeps the routes there: a blackhole may have
/// become its route since the table was read.
fn is_unleased(leases: &Leases, prefix: Ipv4Net) -> bool {
    let overlaps = |other: &Ipv4Net| other.contains(&prefix) || prefix.contains(other);
    leases.network.contains(&prefix)
        && prefix != leases.network
        && prefix != leases.own
        && !leases.others.iter().any(overlaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().expect("a prefix")
    }

    fn leases(others: &[&str]) -> Leases {
        let others = others.iter().map(|other| net(other)).collect();
        Leases {
            network: net("10.5.0.0/16"),
            own: net("10.5.7.0/24"),
            others,
            in_sync: true,
        }
    }

    fn route(destination: &str, target: RouteTarget) -> TableRoute {
        TableRoute {
            destination: net(destination),
            target,
            is_blackhole: false,
            is_static: true,
        }
    }

    fn other(destination: &str) -> TableRoute {
        route(destination, RouteTarget::Other("eni-2".to_owned()))
    }

    fn blackhole(destination: &str) -> TableRoute {
        TableRoute {
            is_blackhole: true,
            ..other(destination)
        }
    }

    fn changes(leases: &Leases, routes: Vec<TableRoute>) -> Vec<(String, RouteChange)> {
        let steps = plan(
            leases,
            &[Table {
                id: "rtb-1".to_owned(),
                routes,
            }],
        );
        steps
            .into_iter()
            .map(|step| (step.destination.to_string(), step.change))
            .collect()
    }

    fn own_route() -> TableRoute {
        route("10.5.7.0/24", RouteTarget::Own)
    }

    fn delete(destination: &str, reason: Removal) -> (String, RouteChange) {
        (destination.to_owned(), RouteChange::Delete { reason })
    }

    #[test]
    fn the_own_route_is_made_kept_or_taken_back() {
        let leases = leases(&[]);
        let local = TableRoute {
            is_static: false,
            ..other("192.168.0.0/16")
        };
        let own = "10.5.7.0/24".to_owned();
        assert_eq!(
            changes(&leases, vec![local]),
            [(own.clone(), RouteChange::Create { routes: 1 })]
        );
        assert_eq!(changes(&leases, vec![own_route()]), []);
        let elsewhere = RouteChange::Replace {
            before: RouteTarget::Other("eni-2".to_owned()),
        };
        assert_eq!(
            changes(&leases, vec![other("10.5.7.0/24")]),
            [(own.clone(), elsewhere.clone())]
        );
        assert_eq!(
            changes(&leases, vec![blackhole("10.5.7.0/24")]),
            [(own.clone(), elsewhere)]
        );
        let half = RouteChange::Replace {
            before: RouteTarget::Other("eni-2".to_owned()),
        };
        let twice = vec![own_route(), other("10.5.7.0/24")];
        assert_eq!(
            changes(&leases, twice),
            [(own.clone(), half)],
            "half of the packets lead elsewhere"
        );
        let announced = TableRoute {
            is_static: false,
            ..other("10.5.7.0/24")
        };
        assert_eq!(
            changes(&leases, vec![announced]),
            [(own, RouteChange::Create { routes: 1 })],
            "ours is preferred"
        );
    }

    #[test]
    fn every_table_gets_the_route() {
        let tables = ["rtb-1", "rtb-2"].map(|id| Table {
            id: id.to_owned(),
            routes: Vec::new(),
        });
        let steps = plan(&leases(&[]), &tables);
        assert_eq!(
            steps
                .iter()
                .map(|step| step.table.as_str())
                .collect::<Vec<_>>(),
            ["rtb-1", "rtb-2"]
        );
    }

    #[test]
    fn blackholes_and_twins_without_a_lease_go_first() {
        let twin = |destination| route(destination, RouteTarget::Own);
        let routes = vec![
            twin("10.5.9.0/24"),
            blackhole("10.5.8.0/24"),
            blackhole("10.5.7.128/25"),
        ];
        let expected = [
            delete("10.5.9.0/24", Removal::Twin),
            delete("10.5.8.0/24", Removal::Blackhole),
            delete("10.5.7.128/25", Removal::Blackhole),
            ("10.5.7.0/24".to_owned(), RouteChange::Create { routes: 3 }),
        ];
        assert_eq!(changes(&leases(&["10.5.1.0/24"]), routes.clone()), expected);
        let waiting = Leases {
            in_sync: false,
            ..leases(&[])
        };
        assert_eq!(
            changes(&waiting, routes),
            expected[3..],
            "leases may be missing"
        );
    }

    #[test]
    fn everything_else_is_left_alone() {
        let routes = vec![
            own_route(),
            // Of other nodes, with a lease or without.
            other("10.5.8.0/24"),
            other("10.5.9.0/24"),
            // Of a node with a lease: its agent's business.
            blackhole("10.5.1.0/24"),
            route("10.5.2.0/24", RouteTarget::Own),
            blackhole("10.5.2.0/25"),
            blackhole("10.5.0.0/20"),
            // Outside the pod network, around it, and all of it.
            blackhole("10.6.0.0/24"),
            route("10.6.1.0/24", RouteTarget::Own),
            blackhole("10.0.0.0/8"),
            blackhole("10.5.0.0/16"),
            blackhole("0.0.0.0/0"),
            // Not made by request.
            TableRoute {
                is_static: false,
                ..blackhole("10.5.9.0/24")
            },
        ];
        assert_eq!(
            changes(&leases(&["10.5.1.0/24", "10.5.2.0/24"]), routes),
            []
        );
    }

    #[test]
    fn removals_are_bounded() {
        let routes = (0..100)
            .map(|number| blackhole(&format!("10.5.{}.0/24", 100 + number)))
            .collect();
        assert_eq!(changes(&leases(&[]), routes).len(), REMOVALS + 1);
    }
}
