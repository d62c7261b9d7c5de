//! The peers of each node, compared with the Nodes from both sides.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flannel_host::words::count;
use flannel_status::{NetworkStatus, PeerStatus, Status};
use flannel_store::config::BackendKind;
use ipnet::IpNet;

use super::{
    claims::{NodeClaims, PublishedEnd},
    problem::{ClusterProblem, ClusterProblemCode, names},
};

/// A peer with another address or VTEP MAC than its Node says: both, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OtherEnd {
    from: usize,
    to: usize,
    text: String,
}

/// The first node does not have the second as a peer.
type Pair = (usize, usize);

/// The differences between the peers of nodes and the Nodes. Answers are compared one by one: all
/// peers of all nodes at once are too many to keep.
#[derive(Clone, Debug, Default)]
pub struct PeerFindings {
    /// The nodes that every other node has as peers, by their Nodes.
    nodes: Vec<(String, Vec<PublishedEnd>)>,
    /// The nodes that answered.
    asked: BTreeSet<usize>,
    missing: BTreeSet<Pair>,
    other_ends: Vec<OtherEnd>,
}

impl PeerFindings {
    /// Findings about the nodes with flannel.
    pub fn new(nodes: &[NodeClaims]) -> Self {
        let with_flannel = nodes.iter().filter(|node| !node.published.is_empty());
        let nodes = with_flannel
            .map(|node| (node.name.clone(), node.published.clone()))
            .collect();
        Self {
            nodes,
            ..Self::default()
        }
    }

    /// Compares the peers of a node.
    pub fn add(&mut self, name: &str, status: &Status) {
        let Some(from) = self.nodes.iter().position(|(known, _)| known == name) else {
            return;
        };
        if status.lease.is_none() || !status.network.as_ref().is_none_or(has_peers) {
            return;
        }
        self.asked.insert(from);
        let by_subnet = |peer: &'_ PeerStatus| peer.subnet.parse::<IpNet>().ok();
        let peers: HashMap<IpNet, &PeerStatus> = status
            .peers
            .iter()
            .filter_map(|peer| Some((by_subnet(peer)?, peer)))
            .collect();
        for (to, (_, published)) in self.nodes.iter().enumerate().filter(|(to, _)| *to != from) {
            for end in published.iter().filter(|end| carries(status, end)) {
                match peers.get(&end.subnet).filter(|peer| peer.way != "none") {
                    None => drop(self.missing.insert((from, to))),
                    Some(peer) => {
                        let found = difference(peer, end).map(|text| OtherEnd { from, to, text });
                        self.other_ends.extend(found);
                    }
                }
            }
        }
    }

    /// The problems, without those of nodes that have another which explains them.
    pub(super) fn problems(&self, is_apart: impl Fn(&String) -> bool) -> Vec<ClusterProblem> {
        let apart: Vec<bool> = self.nodes.iter().map(|(name, _)| is_apart(name)).collect();
        let missing: BTreeSet<Pair> = self
            .missing
            .iter()
            .filter(|(from, to)| apart[*from] && apart[*to])
            .copied()
            .collect();
        let (mut problems, pairs) = self.whole(&missing);
        problems.extend(self.pairs(&pairs));
        problems.extend(self.other_ends(&apart));
        problems
    }

    /// Nodes that most others do not have, and nodes that do not have most others; the rest are
    /// pairs.
    fn whole(&self, missing: &BTreeSet<Pair>) -> (Vec<ClusterProblem>, BTreeSet<Pair>) {
        let (mut problems, mut pairs) = (Vec::new(), missing.clone());
        for side in [Side::To, Side::From] {
            let mut of_node = BTreeMap::<usize, Vec<usize>>::new();
            for pair in missing {
                let (node, other) = side.of(*pair);
                of_node.entry(node).or_default().push(other);
            }
            for (node, others) in of_node {
                let all = match side {
                    Side::To => self.asked.iter().filter(|asked| **asked != node).count(),
                    Side::From => self.nodes.len() - 1,
                };
                let is_listed = !others
                    .iter()
                    .any(|other| pairs.contains(&side.of((node, *other))));
                if others.len() < 2 || others.len() * 2 < all || is_listed {
                    continue;
                }
                pairs.retain(|pair| side.of(*pair).0 != node);
                problems.push(side.problem(self.name(node), self.names(&others), all));
            }
        }
        (problems, pairs)
    }

    fn pairs(&self, pairs: &BTreeSet<Pair>) -> Vec<ClusterProblem> {
        // Of two that lack each other one line.
        let unique = pairs
            .iter()
            .filter(|(from, to)| from < to || !pairs.contains(&(*to, *from)));
        let problem = |pair: &Pair| {
            let [from, to] = [pair.0, pair.1].map(|node| self.name(node));
            let text = if self.missing.contains(&(pair.1, pair.0)) {
                format!(
                    "neither {from} nor {to} has the other as a peer: packets between their pods \
                     are lost"
                )
            } else {
                let back = if self.asked.contains(&pair.1) {
                    format!("; {to} has {from} as a peer")
                } else {
                    format!("; {to} cannot be asked")
                };
                format!(
                    "{from} does not have {to} as a peer: packets from its pods to pods of {to} \
                     are lost{back}"
                )
            };
            ClusterProblem::new(
                ClusterProblemCode::NotAPeer,
                vec![from.to_owned(), to.to_owned()],
                text,
            )
        };
        unique.map(problem).collect()
    }

    fn other_ends(&self, apart: &[bool]) -> Vec<ClusterProblem> {
        let mut of_node = BTreeMap::<(usize, &String), Vec<usize>>::new();
        for found in self.other_ends.iter().filter(|found| apart[found.to]) {
            of_node
                .entry((found.to, &found.text))
                .or_default()
                .push(found.from);
        }
        let problem = |((to, text), from): ((usize, &String), Vec<usize>)| {
            let (mut nodes, to) = (self.names(&from), self.name(to));
            let text = format!(
                "{} {text} of {to}: packets to its pods are lost",
                have(&nodes)
            );
            nodes.push(to.to_owned());
            ClusterProblem::new(ClusterProblemCode::PeerDiffers, nodes, text)
        };
        of_node.into_iter().map(problem).collect()
    }

    fn name(&self, node: usize) -> &str {
        &self.nodes[node].0
    }

    fn names(&self, nodes: &[usize]) -> Vec<String> {
        nodes
            .iter()
            .map(|node| self.name(*node).to_owned())
            .collect()
    }
}

/// True for a backend whose nodes follow each other's leases.
fn has_peers(network: &NetworkStatus) -> bool {
    BackendKind::of_type(&network.backend).is_none_or(|kind| kind.properties().has_peers)
}

/// The two sides of a missing peer.
#[derive(Clone, Copy)]
enum Side {
    /// The node that has no such peer.
    From,
    /// The peer.
    To,
}

impl Side {
    /// The node of this side, and the other; or the pair of these.
    const fn of(self, (one, other): Pair) -> Pair {
        match self {
            Self::From => (one, other),
            Self::To => (other, one),
        }
    }

    fn problem(self, node: &str, mut others: Vec<String>, all: usize) -> ClusterProblem {
        let nodes = count(all, "other node", "other nodes");
        let text = match self {
            Self::To => format!(
                "{} of {nodes} do not have {node} as a peer ({}): packets from their pods to pods \
                 of {node} are lost",
                others.len(),
                names(&others)
            ),
            Self::From => format!(
                "{node} does not have {} of {nodes} as peers ({}): packets from its pods to theirs \
                 are lost",
                others.len(),
                names(&others)
            ),
        };
        others.insert(0, node.to_owned());
        ClusterProblem::new(ClusterProblemCode::NotAPeer, others, text)
    }
}

/// Returns true if a node carries packets of the family of this end.
fn carries(status: &Status, end: &PublishedEnd) -> bool {
    let networks = status.network.iter().flat_map(|network| &network.networks);
    let mut networks = networks
        .filter_map(|network| network.parse::<IpNet>().ok())
        .peekable();
    networks.peek().is_none() || networks.any(|network| network.contains(&end.subnet))
}

/// The other address or VTEP MAC that a node has for a peer.
fn difference(peer: &PeerStatus, end: &PublishedEnd) -> Option<String> {
    if peer.public_ip.parse() != Ok(end.address) {
        return Some(format!(
            "the address {} instead of {}",
            peer.public_ip, end.address
        ));
    }
    let mac = end
        .end
        .as_ref()
        .filter(|end| end.contains(':') && peer.vtep_mac.contains(':'))?;
    let differs = !peer.vtep_mac.eq_ignore_ascii_case(mac);
    differs.then(|| format!("the VTEP MAC {} instead of {mac}", peer.vtep_mac))
}

fn have(nodes: &[String]) -> String {
    match nodes {
        [node] => format!("{node} has"),
        _ => format!("{} nodes ({}) have", nodes.len(), names(nodes)),
    }
}
