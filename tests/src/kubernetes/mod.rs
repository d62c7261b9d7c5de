//! A real Kubernetes in a lab: etcd, the API server, the controller manager and the scheduler on
//! the first of three machines, and containerd, kubelet and kube-proxy on each. RBAC and the
//! authorization of nodes are on.
//!
//! ```text
//!   n1 eth0 10.77.0.11, fd00:77::11 --+
//!   n2 eth0 10.77.0.12, fd00:77::12 --+-- br0 10.77.0.1, fd00:77::1, outside the cluster
//!   n3 eth0 10.77.0.13, fd00:77::13 --+
//! ```
//!
//! The programs and images are those that `cargo xtask cluster` makes. The machines share one
//! kernel, which has its limits: conntrack's size and the out-of-memory scores are not theirs.

mod control_plane;
mod credentials;
mod e2e;
pub mod flannel;
pub mod helm;
mod kubectl;
mod member;
mod objects;
mod parts;
mod pods;
pub mod program;
mod progress;

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use self::credentials::Credentials;
pub use self::{
    control_plane::{ControlPlane, PODS, PODS_V6, SERVICES},
    kubectl::Kubectl,
    member::Member,
    objects::{all_items, condition_is_true, items, require_settled},
    parts::Parts,
    pods::PodOnNode,
    progress::Progress,
};
use crate::{Lab, Node, eventually};

/// The host outside the cluster.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 1);
const NAMES: [&str; 3] = ["n1", "n2", "n3"];
/// By then a node is ready, with its pods.
const READY: Duration = Duration::from_mins(4);

/// A running cluster.
#[derive(Debug)]
pub struct Kubernetes {
    /// The control plane.
    pub control: ControlPlane,
    /// The nodes; the first has the control plane.
    pub nodes: Vec<Member>,
    /// A host that is not part of the cluster.
    pub outside: Node,
    kubectl: Kubectl,
    /// Ends all of it.
    pub lab: Lab,
}

impl Kubernetes {
    /// Starts one on `lab`: three nodes that are registered, and have no network for pods yet.
    pub fn start(lab: Lab, parts: &Parts, progress: &Progress) -> Result<Self> {
        let outside = lab.node("outside")?;
        outside.sh("ip link add br0 type bridge")?;
        outside.sh("ip link set br0 up")?;
        outside.address("br0", &format!("{OUTSIDE}/24"), None)?;
        outside.address("br0", &format!("{OUTSIDE_V6}/64"), None)?;
        let credentials = Credentials::new(
            lab.large_files("credentials")?,
            address(0),
            control_plane::API_SERVICE,
        )?;
        let gateways = (OUTSIDE, OUTSIDE_V6);
        let nodes = NAMES.iter().enumerate().map(|(number, name)| {
            Member::new(
                &lab,
                &outside,
                name,
                (address(number), address_v6(number)),
                gateways,
            )
        });
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let control = thread::scope(|scope| -> Result<ControlPlane> {
            let runtimes: Vec<_> = nodes
                .iter()
                .map(|node| scope.spawn(|| node.start_runtime(parts)))
                .collect();
            let control = ControlPlane::start(&lab, &nodes[0], address(0), parts, &credentials)?;
            progress.say("the API server is ready");
            for runtime in runtimes {
                runtime
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            progress.say("containerd runs, with its images, on each node");
            Ok(control)
        })?;
        nodes
            .iter()
            .try_for_each(|node| node.join(parts, &credentials))?;
        let kubectl = Kubectl::new(&nodes[0], parts, &credentials);
        let cluster = Self {
            control,
            nodes,
            outside,
            kubectl,
            lab,
        };
        eventually("registration of the nodes", READY, || {
            let found = cluster.kubectl.get(["nodes"])?;
            let count = items(&found).count();
            ensure!(count == NAMES.len(), "{count} nodes");
            Ok(())
        })?;
        progress.say("the nodes are registered");
        Ok(cluster)
    }

    /// kubectl of the administrator.
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// A node, by its name.
    pub fn node(&self, name: &str) -> Result<&Member> {
        self.nodes
            .iter()
            .find(|node| node.name() == name)
            .with_context(|| format!("a node {name}"))
    }

    /// Waits until every node is ready and every pod of `namespace` with this label is too, and
    /// none of them is being deleted.
    pub fn wait_ready(&self, namespace: &str, label: &str) -> Result<()> {
        eventually("nodes and pods that are ready", READY, || {
            let nodes = self.kubectl.get(["nodes"])?;
            items(&nodes).try_for_each(|node| condition_is_true(node, "Ready"))?;
            let pods = self
                .kubectl
                .get(["pods", "--namespace", namespace, "--selector", label])?;
            require_settled(&pods)?;
            ensure!(items(&pods).count() > 0, "no pods with {label}");
            items(&pods).try_for_each(|pod| condition_is_true(pod, "Ready"))
        })
    }
}

/// The address of the node with this number.
fn address(number: usize) -> Ipv4Addr {
    let last = 11 + u8::try_from(number).unwrap_or_default();
    Ipv4Addr::new(10, 77, 0, last)
}

fn address_v6(number: usize) -> Ipv6Addr {
    let last = 0x11 + u16::try_from(number).unwrap_or_default();
    Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, last)
}
