//! Clusters of answers, and what is found in them.

use flannel_status::{NetworkStatus, Status};

use super::*;
use crate::{
    records::NodeObject,
    testing::nodes::{NOW, answer, mac, node_json},
};

fn node(index: usize) -> NodeObject {
    serde_json::from_value(node_json(index)).expect("a node")
}

/// The problems of a cluster of `number` nodes, some of whose answers are changed.
fn found(number: usize, change: impl Fn(usize, &mut Status)) -> Vec<ClusterProblem> {
    found_in(&(1..=number).map(node).collect::<Vec<_>>(), |index| {
        let mut status = answer(index, number);
        change(index, &mut status);
        Some(status)
    })
}

fn found_in(nodes: &[NodeObject], answer: impl Fn(usize) -> Option<Status>) -> Vec<ClusterProblem> {
    let mut claims: Vec<NodeClaims> = nodes.iter().map(NodeClaims::of_node).collect();
    let mut peers = PeerFindings::new(&claims);
    for (index, claims) in claims.iter_mut().enumerate() {
        if let Some(status) = answer(index + 1) {
            peers.add(&claims.name, &status);
            *claims = std::mem::take(claims).with_answer(&status, [NOW; 2]);
        }
    }
    compare(&claims, &peers)
}

fn lines(problems: &[ClusterProblem]) -> Vec<(ClusterProblemCode, &str)> {
    problems
        .iter()
        .map(|problem| (problem.code, problem.text.as_str()))
        .collect()
}

fn only(problems: &[ClusterProblem]) -> (ClusterProblemCode, &str) {
    assert_eq!(problems.len(), 1, "{problems:#?}");
    lines(problems)[0]
}

#[test]
fn a_cluster_that_is_well_has_no_problem() {
    assert_eq!(found(62, |_, _| ()), []);
    assert_eq!(found(1, |_, _| ()), []);
}

#[test]
fn many_nodes_with_one_subnet_are_one_problem() {
    let first_lease = answer(1, 62).lease;
    let problems = found(62, |_, status| status.lease.clone_from(&first_lease));
    let expected = "62 nodes (n1, n2, n3 and 59 more) have the subnet 10.244.1.0/24 and the \
        address 192.0.2.1: packets \
                    between their pods are lost, in both directions of each pair; 61 of these \
                    Nodes have another pod \
                    CIDR (n2: 10.244.2.0/24, n3: 10.244.3.0/24, n4: 10.244.4.0/24 and 58 more)";
    assert_eq!(only(&problems), (ClusterProblemCode::SameSubnet, expected));
    assert_eq!(problems[0].nodes.len(), 62);
}

#[test]
fn two_nodes_with_overlapping_subnets_have_both_directions_named() {
    let problems = found(3, |index, status| {
        if index == 2 {
            status.lease.as_mut().expect("a lease").subnet = "10.244.1.128/25".to_owned();
        }
    });
    let expected = "n1 and n2 have the subnet 10.244.1.0/24: packets from pods of n1 to pods of n2 \
        are lost, and those \
                    from n2 to n1; one of these Nodes has another pod CIDR (n2: 10.244.2.0/24)";
    assert_eq!(only(&problems), (ClusterProblemCode::SameSubnet, expected));
}

#[test]
fn one_address_and_one_mac_of_two_nodes_are_found_without_an_answer() {
    let mut nodes: Vec<NodeObject> = (1..=3).map(node).collect();
    let annotation = |name: &str| format!("flannel.alpha.coreos.com/{name}");
    let annotations = nodes[0].metadata.annotations.clone();
    for name in ["public-ip", "backend-data"].map(annotation) {
        nodes[2]
            .metadata
            .annotations
            .insert(name.clone(), annotations[&name].clone());
    }
    let problems = found_in(&nodes, |_| None);
    let codes: Vec<_> = problems
        .iter()
        .map(|problem| (problem.code, problem.nodes.join(" ")))
        .collect();
    let (address, end) = (ClusterProblemCode::SameAddress, ClusterProblemCode::SameEnd);
    assert_eq!(
        codes,
        [(address, "n1 n3".to_owned()), (end, "n1 n3".to_owned())]
    );
}

#[test]
fn an_agent_that_is_not_as_its_node_says_is_found() {
    let problems = found(3, |index, status| {
        if index == 3 {
            status.lease.as_mut().expect("a lease").public_ip = "198.51.100.3".to_owned();
        }
    });
    let expected = "agents use another subnet or address than their Nodes say (n3: 198.51.100.3 \
        instead of \
                    192.0.2.3): peers send packets elsewhere";
    assert_eq!(only(&problems), (ClusterProblemCode::NodeDiffers, expected));
}

#[test]
fn a_missing_peer_is_named_from_both_sides() {
    let without = |index: usize, missing: usize, status: &mut Status, own: usize| {
        if own == index {
            status
                .peers
                .retain(|peer| peer.subnet != format!("10.244.{missing}.0/24"));
        }
    };
    let one = found(5, |own, status| without(1, 2, status, own));
    let expected = "n1 does not have n2 as a peer: packets from its pods to pods of n2 are lost; \
        n2 has n1 as a peer";
    assert_eq!(only(&one), (ClusterProblemCode::NotAPeer, expected));
    let both = found(5, |own, status| {
        without(1, 2, status, own);
        without(2, 1, status, own);
    });
    let expected = "neither n1 nor n2 has the other as a peer: packets between their pods are lost";
    assert_eq!(only(&both), (ClusterProblemCode::NotAPeer, expected));
    let no_way = found(5, |own, status| {
        if own == 1 {
            "none".clone_into(&mut status.peers[0].way);
        }
    });
    assert_eq!(only(&no_way).0, ClusterProblemCode::NotAPeer);
    // A node that cannot be asked may have the peer or not.
    let nodes: Vec<NodeObject> = (1..=5).map(node).collect();
    let silent = found_in(&nodes, |index| {
        let mut status = answer(index, 5);
        without(1, 2, &mut status, index);
        (index != 2).then_some(status)
    });
    assert!(
        only(&silent).1.ends_with("; n2 cannot be asked"),
        "{silent:?}"
    );
}

#[test]
fn a_pair_below_a_line_of_most_nodes_is_not_said_to_be_half_well() {
    // Most do not have n1, and n1 does not have n2.
    let problems = found(6, |own, status| match own {
        1 => status.peers.retain(|peer| peer.subnet != "10.244.2.0/24"),
        2..=5 => status.peers.retain(|peer| peer.subnet != "10.244.1.0/24"),
        _ => {}
    });
    let expected = [
        "4 of 5 other nodes do not have n1 as a peer (n2, n3, n4 and 1 more): packets from their \
         pods to pods of n1 \
         are lost",
        "neither n1 nor n2 has the other as a peer: packets between their pods are lost",
    ];
    assert_eq!(
        lines(&problems),
        expected.map(|text| (ClusterProblemCode::NotAPeer, text))
    );
}

#[test]
fn a_node_without_peers_is_two_problems_and_not_sixty() {
    let problems = found(62, |own, status| match own {
        7 => status.peers.clear(),
        _ => status.peers.retain(|peer| peer.subnet != "10.244.7.0/24"),
    });
    let expected = [
        "61 of 61 other nodes do not have n7 as a peer (n1, n2, n3 and 58 more): packets from \
         their pods to pods of \
         n7 are lost",
        "n7 does not have 61 of 61 other nodes as peers (n1, n2, n3 and 58 more): packets from its \
         pods to theirs \
         are lost",
    ];
    assert_eq!(
        lines(&problems),
        expected.map(|text| (ClusterProblemCode::NotAPeer, text))
    );
}

#[test]
fn a_peer_with_another_address_or_mac_is_one_problem_for_all_that_have_it() {
    let problems = found(6, |own, status| {
        for peer in status
            .peers
            .iter_mut()
            .filter(|peer| own != 4 && peer.node.as_deref() == Some("n4"))
        {
            "02:00:00:00:ff:ff".clone_into(&mut peer.vtep_mac);
        }
    });
    let expected = "5 nodes (n1, n2, n3 and 2 more) have the VTEP MAC 02:00:00:00:ff:ff instead of \
                    02:00:00:00:00:04 of n4: packets to its pods are lost";
    assert_eq!(only(&problems), (ClusterProblemCode::PeerDiffers, expected));
    let problems = found(3, |own, status| {
        if own == 1 {
            "198.51.100.2".clone_into(&mut status.peers[0].public_ip);
        }
    });
    assert!(
        only(&problems)
            .1
            .starts_with("n1 has the address 198.51.100.2 instead of 192.0.2.2 of n2")
    );
}

fn network(status: &mut Status) -> &mut NetworkStatus {
    status.network.as_mut().expect("a network")
}

#[test]
fn settings_that_differ_are_named_with_the_nodes_that_are_fewer() {
    use ClusterProblemCode::{
        ClockDiffers, ModeDiffers, MtuDiffers, NetworkDiffers, VersionDiffers,
    };
    let changed = |change: fn(&mut Status)| {
        let problems = found(5, |own, status| {
            if own == 4 {
                change(status);
            }
        });
        let (code, text) = only(&problems);
        assert_eq!(problems[0].nodes, ["n4"]);
        (code, text.to_owned())
    };
    let (code, text) = changed(|status| network(status).mtu = Some(1400));
    let expected = "the MTU of pods differs: 1450 on n1, n2, n3 and 1 more; 1400 on n4: large \
        packets to nodes with the \
                    smaller one are lost";
    assert_eq!((code, text.as_str()), (MtuDiffers, expected));
    assert_eq!(
        changed(|status| network(status).vni = Some(7)).0,
        NetworkDiffers
    );
    assert_eq!(
        changed(|status| network(status).port = Some(4789)).0,
        NetworkDiffers
    );
    assert_eq!(
        changed(|status| "host-gw".clone_into(&mut network(status).backend)).0,
        NetworkDiffers
    );
    assert_eq!(
        changed(|status| "kernel".clone_into(&mut status.mode.wanted)).0,
        ModeDiffers
    );
    assert_eq!(
        changed(|status| "0.2.0".clone_into(&mut status.version)).0,
        VersionDiffers
    );
    let (code, text) = changed(|status| status.time = Some(NOW - 3_600));
    assert_eq!(
        (code, text.as_str()),
        (
            ClockDiffers,
            "clocks differ from those of most nodes: n4 is 1h behind"
        )
    );
}

#[test]
fn the_clock_of_the_machine_that_asks_does_not_matter() {
    assert_eq!(found(5, |_, status| status.time = Some(NOW - 3_600)), []);
}

#[test]
fn nodes_of_an_earlier_version_are_compared_as_far_as_they_tell() {
    let problems = found(3, |_, status| (status.network, status.time) = (None, None));
    assert_eq!(problems, []);
}

#[test]
fn a_stock_node_is_compared_by_its_annotations() {
    let mut nodes: Vec<NodeObject> = (1..=3).map(node).collect();
    let other = format!("{{\"VNI\":7,\"VtepMAC\":\"{}\"}}", mac(3));
    nodes[2]
        .metadata
        .annotations
        .insert("flannel.alpha.coreos.com/backend-data".to_owned(), other);
    let problems = found_in(&nodes, |index| (index != 3).then(|| answer(index, 3)));
    assert_eq!(only(&problems).0, ClusterProblemCode::NetworkDiffers);
    assert!(
        problems[0]
            .text
            .starts_with("the VNI differs: 1 on n1, n2; 7 on n3"),
        "{problems:?}"
    );
    // A family that is off has no address.
    nodes[2].metadata.annotations.insert(
        "flannel.alpha.coreos.com/public-ip".to_owned(),
        "0.0.0.0".to_owned(),
    );
    assert_eq!(PublishedEnd::of(&nodes[2]), []);
}
