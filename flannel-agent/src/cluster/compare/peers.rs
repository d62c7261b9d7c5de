//! The peers of each node, compared with the Nodes from both sides.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flannel_host::words::{compare_names, count};
use flannel_status::{PeerStatus, Status};
use flannel_store::config::BackendKind;
use ipnet::IpNet;

use super::{ClusterProblem, ClusterProblemCode, NodeClaims, PublishedEnd, names};

/// The nodes that every other node has as peers, by their Nodes. Answers are compared with it one
/// by one: all peers of all nodes at once are too many to keep.
#[derive(Debug)]
pub struct Roster {
    nodes: Vec<(String, Vec<PublishedEnd>)>,
}

impl Roster {
    /// The nodes with flannel.
    pub fn new(nodes: &[NodeClaims]) -> Self {
        let with_flannel = nodes.iter().filter(|node| !node.published.is_empty());
        Self { nodes: with_flannel.map(|node| (node.name.clone(), node.published.clone())).collect() }
    }
}

/// A peer with another address or VTEP MAC than its Node says: both, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OtherEnd {
    from: String,
    to: String,
    text: String,
}

/// The differences between the peers of nodes and the Nodes.
#[derive(Clone, Debug, Default)]
pub struct PeerFindings {
    /// The nodes that answered.
    asked: BTreeSet<String>,
    /// Pairs: the first does not have the second.
    missing: BTreeSet<(String, String)>,
    other_ends: Vec<OtherEnd>,
    /// The number of nodes with flannel.
    known: usize,
}

impl PeerFindings {
    /// Compares the peers of a node.
    pub fn add(&mut self, roster: &Roster, name: &str, status: &Status) {
        self.known = roster.nodes.len();
        let has_peers = |network: &flannel_status::NetworkStatus| {
            BackendKind::of_type(&network.backend).is_none_or(|kind| kind.properties().has_peers)
        };
        if status.lease.is_none() || !status.network.as_ref().is_none_or(has_peers) {
            return;
        }
        self.asked.insert(name.to_owned());
        let parse = |peer: &'_ PeerStatus| peer.subnet.parse::<IpNet>().ok();
        let peers: HashMap<IpNet, &PeerStatus> =
            status.peers.iter().filter_map(|peer| Some((parse(peer)?, peer))).collect();
        for (other, published) in roster.nodes.iter().filter(|(other, _)| other != name) {
            for end in published.iter().filter(|end| carries(status, end)) {
                match peers.get(&end.subnet).filter(|peer| peer.way != "none") {
                    None => {
                        self.missing.insert((name.to_owned(), other.clone()));
                    }
                    Some(peer) => self.other_ends.extend(difference(peer, end).map(|text| OtherEnd {
                        from: name.to_owned(),
                        to: other.clone(),
                        text,
                    })),
                }
            }
        }
    }

    /// The problems, without those of nodes that have another which explains them.
    pub(super) fn problems(&self, is_apart: impl Fn(&String) -> bool) -> Vec<ClusterProblem> {
        let apart = |(from, to): &&(String, String)| is_apart(from) && is_apart(to);
        let missing: BTreeSet<_> = self.missing.iter().filter(apart).cloned().collect();
        let (whole, pairs) = self.whole(&missing);
        let mut problems = whole;
        problems.extend(self.pairs(&pairs));
        problems.extend(self.other_ends(is_apart));
        problems
    }

    /// Nodes that most others do not have, and nodes that do not have most others; the rest are
    /// pairs.
    fn whole(&self, missing: &BTreeSet<(String, String)>) -> (Vec<ClusterProblem>, BTreeSet<(String, String)>) {
        let (mut problems, mut pairs) = (Vec::new(), missing.clone());
        for side in [Side::To, Side::From] {
            let mut of_node = BTreeMap::<&String, Vec<String>>::new();
            for pair in missing {
                let (node, other) = side.of(pair);
                of_node.entry(node).or_default().push(other.clone());
            }
            for (node, mut others) in of_node {
                others.sort_by(|a, b| compare_names(a, b));
                let all = match side {
                    Side::To => self.asked.iter().filter(|asked| *asked != node).count(),
                    Side::From => self.known - 1,
                };
                let is_listed = others.iter().any(|other| pairs.contains(&side.pair(node, other)));
                if others.len() < 2 || others.len() * 2 < all || !is_listed {
                    continue;
                }
                pairs.retain(|pair| side.of(pair).0 != node);
                problems.push(side.problem(node, others, all));
            }
        }
        (problems, pairs)
    }

    fn pairs(&self, missing: &BTreeSet<(String, String)>) -> Vec<ClusterProblem> {
        let unique = missing.iter().filter(|(from, to)| from < to || !missing.contains(&(to.clone(), from.clone())));
        let problem = |(from, to): &(String, String)| {
            let text = if missing.contains(&(to.clone(), from.clone())) {
                format!("neither {from} nor {to} has the other as a peer: packets between their pods are lost")
            } else {
                let back = if self.asked.contains(to) {
                    format!("; {to} has {from} as a peer")
                } else {
                    format!("; {to} cannot be asked")
                };
                format!("{from} does not have {to} as a peer: packets from its pods to pods of {to} are lost{back}")
            };
            ClusterProblem::new(ClusterProblemCode::NotAPeer, vec![from.clone(), to.clone()], text)
        };
        unique.map(problem).collect()
    }

    fn other_ends(&self, is_apart: impl Fn(&String) -> bool) -> Vec<ClusterProblem> {
        let mut of_node = BTreeMap::<(&String, &String), Vec<String>>::new();
        for found in self.other_ends.iter().filter(|found| is_apart(&found.to)) {
            of_node.entry((&found.to, &found.text)).or_default().push(found.from.clone());
        }
        let problem = |((to, text), mut from): ((&String, &String), Vec<String>)| {
            let text = format!("{} {text} of {to}: packets to its pods are lost", have(&from));
            from.push(to.clone());
            ClusterProblem::new(ClusterProblemCode::PeerDiffers, from, text)
        };
        of_node.into_iter().map(problem).collect()
    }
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
    /// The node of this side, and the other.
    const fn of(self, pair: &(String, String)) -> (&String, &String) {
        match self {
            Self::From => (&pair.0, &pair.1),
            Self::To => (&pair.1, &pair.0),
        }
    }

    fn pair(self, node: &str, other: &str) -> (String, String) {
        match self {
            Self::From => (node.to_owned(), other.to_owned()),
            Self::To => (other.to_owned(), node.to_owned()),
        }
    }

    fn problem(self, node: &str, mut others: Vec<String>, all: usize) -> ClusterProblem {
        let nodes = count(all, "other node", "other nodes");
        let text = match self {
            Self::To => format!(
                "{} of {nodes} do not have {node} as a peer ({}): packets from their pods to pods of {node} are lost",
                others.len(),
                names(&others)
            ),
            Self::From => format!(
                "{node} does not have {} of {nodes} as peers ({}): packets from its pods to theirs are lost",
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
    let mut networks = networks.filter_map(|network| network.parse::<IpNet>().ok()).peekable();
    networks.peek().is_none() || networks.any(|network| network.contains(&end.subnet))
}

/// The other address or VTEP MAC that a node has for a peer.
fn difference(peer: &PeerStatus, end: &PublishedEnd) -> Option<String> {
    if peer.public_ip.parse() != Ok(end.address) {
        return Some(format!("the address {} instead of {}", peer.public_ip, end.address));
    }
    let mac = end.end.as_ref().filter(|end| end.contains(':') && peer.vtep_mac.contains(':'))?;
    let differs = !peer.vtep_mac.eq_ignore_ascii_case(mac);
    differs.then(|| format!("the VTEP MAC {} instead of {mac}", peer.vtep_mac))
}

fn have(nodes: &[String]) -> String {
    match nodes {
        [node] => format!("{node} has"),
        _ => format!("{} nodes ({}) have", nodes.len(), names(nodes)),
    }
}
