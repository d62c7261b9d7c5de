//! The checks of a test: every pair of nodes, in each family that the pods have. Pure.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use flannel_host::family::Family;
use serde::Serialize;

use super::{
    deploy::TestNode,
    manifest::Role,
    target::{Outcome, ProbeKind, Target},
};

/// A check of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// A pod sends to a pod.
    PodToPod,
    /// A pod sends to a Service with one pod.
    PodToService,
    /// A pod sends to a node.
    PodToNode,
    /// A node sends to a pod.
    NodeToPod,
    /// A pod sends to the address of `--outside`.
    PodToOutside,
    /// The largest packet from pod to pod is as large as the device's MTU.
    Mtu,
}

impl Check {
    /// The checks of pairs of nodes.
    pub const OF_PAIRS: [Self; 5] = [
        Self::PodToPod,
        Self::Mtu,
        Self::PodToService,
        Self::PodToNode,
        Self::NodeToPod,
    ];

    /// The name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::PodToPod => "pod to pod",
            Self::PodToService => "pod to Service",
            Self::PodToNode => "pod to node",
            Self::NodeToPod => "node to pod",
            Self::PodToOutside => "pod to outside",
            Self::Mtu => "MTU, pod to pod",
        }
    }

    /// The role of the pod that sends.
    const fn source(self) -> Role {
        match self {
            Self::NodeToPod => Role::Host,
            Self::PodToPod
            | Self::PodToService
            | Self::PodToNode
            | Self::PodToOutside
            | Self::Mtu => Role::Client,
        }
    }

    const fn probe(self) -> ProbeKind {
        match self {
            Self::PodToOutside => ProbeKind::Connect,
            Self::Mtu => ProbeKind::Mtu,
            Self::PodToPod | Self::PodToService | Self::PodToNode | Self::NodeToPod => {
                ProbeKind::Echo
            }
        }
    }
}

/// One check of one pair, and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PairCheck {
    /// The check.
    pub check: Check,
    /// The family; absent outside the cluster.
    #[cfg_attr(
        test,
        schemars(with = "Option<flannel_json_schema::types::FamilyName>")
    )]
    pub family: Option<String>,
    /// The name of the node that sends.
    pub from: String,
    /// The name of the node that answers; absent outside the cluster.
    pub to: Option<String>,
    /// The address and port that packets are sent to; absent without a pod.
    pub address: Option<String>,
    /// True if it passed.
    pub ok: bool,
    /// The reason why it did not.
    pub error: Option<String>,
    /// The protocol that failed, `tcp` or `udp`.
    #[cfg_attr(
        test,
        schemars(with = "Option<flannel_json_schema::types::TransportName>")
    )]
    pub protocol: Option<String>,
    /// The address that packets were sent from.
    pub local: Option<String>,
    /// The largest packet, in bytes with its IP header.
    pub size: Option<u32>,
    /// The MTU of the device that sends, in bytes.
    pub device_mtu: Option<u32>,
    /// The numbers of the nodes.
    #[serde(skip)]
    pub pair: (usize, Option<usize>),
}

/// The probes of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The number of its node.
    pub node: usize,
    /// The pod.
    pub role: Role,
    /// Its targets. The key of each is the number of its check.
    pub targets: Vec<Target>,
}

/// Targets that one command gets.
const BATCH: usize = 100;

/// The checks of these kinds, and the probes for them. A check that cannot be made has failed
/// already.
pub fn plan(
    nodes: &[TestNode],
    of_pairs: &[Check],
    port: u16,
    outside: Option<&str>,
) -> (Vec<PairCheck>, Vec<Batch>) {
    let mut checks = Vec::new();
    for (from, node) in nodes.iter().enumerate() {
        for check in of_pairs {
            for family in families(nodes) {
                for (to, other) in nodes.iter().enumerate() {
                    checks.push(pair(*check, family, (from, node), (to, other), port));
                }
            }
        }
        checks.extend(outside.map(|outside| outward(from, node, outside)));
    }
    let batches = batches(&checks);
    (checks, batches)
}

/// The families that pods of the test have.
pub fn families(nodes: &[TestNode]) -> Vec<Family> {
    let pods = || {
        nodes
            .iter()
            .flat_map(|node| [&node.pods[&Role::Client], &node.pods[&Role::Server]])
    };
    let has = |family: &Family| {
        pods().any(|pod| pod.addresses.iter().any(|address| is_of(*family, address)))
    };
    Family::BOTH.into_iter().filter(has).collect()
}

fn is_of(family: Family, address: &IpAddr) -> bool {
    (family == Family::V4) == address.is_ipv4()
}

fn pair(
    check: Check,
    family: Family,
    (from, source): (usize, &TestNode),
    (to, other): (usize, &TestNode),
    port: u16,
) -> PairCheck {
    let (addresses, role) = match check {
        Check::PodToService => (&other.service, Role::Server),
        Check::PodToNode => (&other.pods[&Role::Host].addresses, Role::Host),
        Check::PodToPod | Check::Mtu | Check::NodeToPod | Check::PodToOutside => {
            (&other.pods[&Role::Server].addresses, Role::Server)
        }
    };
    let address = addresses.iter().find(|address| is_of(family, address));
    let error = missing(source, check.source(), from)
        .or_else(|| missing(other, role, to))
        .or_else(|| {
            address
                .is_none()
                .then(|| format!("{} has no address of {family} there", other.name))
        });
    PairCheck {
        family: Some(family.to_string()),
        to: Some(other.name.clone()),
        address: address.map(|address| SocketAddr::new(*address, port).to_string()),
        error,
        pair: (from, Some(to)),
        ..unchecked(check, source, from)
    }
}

fn outward(from: usize, node: &TestNode, outside: &str) -> PairCheck {
    PairCheck {
        address: Some(outside.to_owned()),
        error: missing(node, Role::Client, from),
        ..unchecked(Check::PodToOutside, node, from)
    }
}

fn unchecked(check: Check, source: &TestNode, from: usize) -> PairCheck {
    PairCheck {
        check,
        family: None,
        from: source.name.clone(),
        to: None,
        address: None,
        ok: false,
        error: None,
        protocol: None,
        local: None,
        size: None,
        device_mtu: None,
        pair: (from, None),
    }
}

/// Describes why a pod does not run; `None` if it does.
fn missing(node: &TestNode, role: Role, number: usize) -> Option<String> {
    let problem = node.pods[&role].problem.as_ref()?;
    Some(format!(
        "the test pod {} on {} does not run: {problem}",
        role.pod(number),
        node.name
    ))
}

fn batches(checks: &[PairCheck]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    // The number of the batch of each pod that has room.
    let mut open = BTreeMap::new();
    for (key, check) in checks
        .iter()
        .enumerate()
        .filter(|(_, check)| check.error.is_none())
    {
        let Some(address) = check.address.clone() else {
            continue;
        };
        let (node, role) = (check.pair.0, check.check.source());
        let target = Target {
            key,
            kind: check.check.probe(),
            address,
        };
        let number = *open.entry((node, role)).or_insert(batches.len());
        match batches.get_mut(number) {
            Some(batch) if batch.targets.len() < BATCH => batch.targets.push(target),
            _ => {
                open.insert((node, role), batches.len());
                batches.push(Batch {
                    node,
                    role,
                    targets: vec![target],
                });
            }
        }
    }
    batches
}

/// Writes the results of a batch into the checks. A target without a result has failed, for
/// `silence` or because the probe left it out.
pub fn record_results(
    checks: &mut [PairCheck],
    batch: &Batch,
    result: Result<Vec<Outcome>, String>,
) {
    let (outcomes, silence) = match result {
        Ok(outcomes) => (outcomes, "the probe has no result for it".to_owned()),
        Err(silence) => (Vec::new(), silence),
    };
    for target in &batch.targets {
        let Some(check) = checks.get_mut(target.key) else {
            continue;
        };
        let Some(outcome) = outcomes.iter().find(|outcome| outcome.key == target.key) else {
            check.error = Some(silence.clone());
            continue;
        };
        let Outcome {
            error,
            protocol,
            local,
            size,
            device_mtu,
            ..
        } = outcome.clone();
        check.error = error.or_else(|| stranger(check, outcome));
        check.ok = check.error.is_none();
        (check.protocol, check.local, check.size, check.device_mtu) =
            (protocol, local, size, device_mtu);
    }
}

/// Describes an answer of another pod than the one that was asked; `None` for the right one.
fn stranger(check: &PairCheck, outcome: &Outcome) -> Option<String> {
    let role = if check.check == Check::PodToNode {
        Role::Host
    } else {
        Role::Server
    };
    let (expected, server) = (role.pod(check.pair.1?), outcome.server.as_ref()?);
    (*server != expected).then(|| format!("{server} answered in place of {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::TestPod;

    fn node(number: u8, server: Option<&str>) -> TestNode {
        let pod = |last: u8| TestPod {
            addresses: vec![[10, 244, number, last].into()],
            problem: None,
        };
        let server = server.map_or_else(
            || pod(3),
            |problem| TestPod {
                addresses: Vec::new(),
                problem: Some(problem.to_owned()),
            },
        );
        let host = TestPod {
            addresses: vec![[192, 0, 2, number].into()],
            problem: None,
        };
        TestNode {
            name: format!("n{number}"),
            pods: [
                (Role::Client, pod(2)),
                (Role::Server, server),
                (Role::Host, host),
            ]
            .into(),
            service: vec![[10, 96, 0, number].into()],
        }
    }

    #[test]
    fn every_pair_has_every_check() {
        let (checks, batches) = plan(
            &[node(0, None), node(1, None)],
            &Check::OF_PAIRS,
            7,
            Some("example.com:443"),
        );
        assert_eq!(checks.len(), 2 * (5 * 2 + 1));
        assert!(
            checks.iter().all(|check| check.error.is_none()),
            "{checks:?}"
        );
        let sources: Vec<_> = batches
            .iter()
            .map(|batch| (batch.node, batch.role, batch.targets.len()))
            .collect();
        assert_eq!(
            sources,
            [
                (0, Role::Client, 9),
                (0, Role::Host, 2),
                (1, Role::Client, 9),
                (1, Role::Host, 2)
            ]
        );
        let service = checks
            .iter()
            .find(|check| check.check == Check::PodToService && check.pair == (0, Some(1)));
        assert_eq!(
            service.and_then(|check| check.address.as_deref()),
            Some("10.96.0.1:7")
        );
    }

    #[test]
    fn a_pod_that_does_not_run_fails_its_pairs_alone() {
        let (checks, _) = plan(
            &[node(0, None), node(1, Some("ErrImagePull"))],
            &Check::OF_PAIRS,
            7,
            None,
        );
        let failed: Vec<_> = checks
            .iter()
            .filter(|check| check.error.is_some())
            .collect();
        assert!(
            failed
                .iter()
                .all(|check| check.pair.1 == Some(1) && check.check != Check::PodToNode),
            "{failed:?}"
        );
        assert_eq!(failed.len(), 8);
        let error = failed[0].error.as_deref().expect("a reason");
        assert_eq!(
            error,
            "the test pod server-1 on n1 does not run: ErrImagePull"
        );
    }

    #[test]
    fn results_go_to_their_checks_and_silence_is_a_failure() {
        let (mut checks, batches) =
            plan(&[node(0, None), node(1, None)], &Check::OF_PAIRS, 7, None);
        let (batch, other) = (&batches[0], &batches[1]);
        let outcome = |key, server: &str| Outcome {
            key,
            server: Some(server.to_owned()),
            ..Outcome::default()
        };
        let keys: Vec<_> = batch.targets.iter().map(|target| target.key).collect();
        record_results(
            &mut checks,
            batch,
            Ok(vec![
                outcome(keys[0], "server-0"),
                outcome(keys[1], "server-0"),
            ]),
        );
        record_results(&mut checks, other, Err("no answer".to_owned()));
        assert!(checks[keys[0]].ok);
        assert_eq!(
            checks[keys[1]].error.as_deref(),
            Some("server-0 answered in place of server-1")
        );
        assert!(checks[keys[2]].error.is_some() && !checks[keys[2]].ok);
        assert_eq!(
            checks[other.targets[0].key].error.as_deref(),
            Some("no answer")
        );
    }

    #[test]
    fn long_lists_of_targets_are_split() {
        let nodes: Vec<_> = (0..60).map(|number| node(number, None)).collect();
        let (checks, batches) = plan(&nodes, &Check::OF_PAIRS, 7, None);
        assert!(batches.iter().all(|batch| batch.targets.len() <= BATCH));
        assert_eq!(
            batches
                .iter()
                .map(|batch| batch.targets.len())
                .sum::<usize>(),
            checks.len()
        );
    }
}
